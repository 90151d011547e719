"""`chronicle consume`: run a syncer over a queue."""

from __future__ import annotations

from dataclasses import replace

import click

from chronicle.runtime.job import Job
from chronicle.runtime.loader import load
from chronicle.transports.catalog import open_transport
from chronicle.transports.seam import DeadLetters, refuse_what_it_cannot
from chronicle_cli import options, report, topology
from chronicle_cli.help import Command
from chronicle_cli.running import observe, pipeline_of, run

EXAMPLES = """
chronicle consume --queue cus.12.deliver --syncer my_crm:sync
chronicle consume --url amqps://you@api.proca.app/proca_live --queue cus.12.deliver --syncer my_crm:sync
chronicle consume --queue orders --syncer shop/sync.py:Orders --schema json --concurrency 20
chronicle consume --queue cus.12.deliver --syncer my_crm:sync --until-empty --max-time 5m
chronicle consume --queue orders --syncer sync.py:run --schema json --declare --exchange shop --ttl 1h
"""


@click.command(cls=Command, examples=EXAMPLES)
@options.where
@options.work
@options.outcome
@topology.consuming
@options.bounds
@options.lifecycle
@options.output
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> int:
    """Run a syncer over a queue.

    Each message is checked, decrypted and given to the syncer. True acknowledges it; False gives it one more
    try and then the dead letters. An exception, or any other answer, ends the process with code 1 and leaves
    the message in the queue.

    Exit codes: 0 done, 1 fatal, 2 usage or configuration, 3 broker not reachable, 4 stopped with unfinished
    messages given back, 128+n forced by a second signal.
    """
    where, work = options.where_of(ctx), options.work_of(ctx)
    policy = options.policy_of(ctx)
    if where.notice:
        report.note(where.notice)
    declared = topology.declared_of(ctx, where.url, policy)
    report.warn(*where.warnings, *work.warnings, *topology.oddities(ctx, where.url, declared))

    syncer = load(work.syncer, work.app_dir)
    connector = replace(where.connector(work.prefetch), declare=declared)
    transport = open_transport(connector)
    refuse_what_it_cannot(transport.promises, policy)
    job = Job(
        syncer,
        pipeline_of(work, policy),
        policy,
        work.concurrency,
        work.prefetch,
        options.bounds_of(ctx),
        options.lifecycle_of(ctx),
    )
    management_url: str | None = ctx.params["management_url"]
    remark = None
    if transport.promises.dead_letters is DeadLetters.BROKER:
        from chronicle_cli.foresight import dead_letters

        remark = dead_letters(connector, management_url, allow_drop=ctx.params["allow_drop"])
    urls = (where.url, management_url or "")
    observer = observe(options.output_of(ctx), where.queue, syncer.name, transport, *urls)
    if remark is not None:
        remark.tell(observer, where.queue)
    return run(job, transport, observer)
