"""`chronicle consume`: run a syncer over a queue."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import click

from chronicle.core.body import MAX_BODY
from chronicle.engine.job import Exit, Job
from chronicle.errors import SettingError
from chronicle.settings.run import asked, connector_of
from chronicle.telemetry.events import Observer
from chronicle.transports.catalog import open_transport
from chronicle.transports.seam import Transport, refuse_what_it_cannot
from chronicle_cli import limit_options, options, report, topology_options
from chronicle_cli.broker_options import own_options
from chronicle_cli.foreground import load_syncer, observe, pipeline_of, progress_of, run
from chronicle_cli.given import refuse_typed, typed
from chronicle_cli.help import Command

EXAMPLES = """
chronicle consume --queue cus.12.deliver --syncer my_crm:sync
chronicle consume --url amqps://you@api.proca.app/proca_live --queue cus.12.deliver --syncer my_crm:sync
chronicle consume --queue orders --syncer shop/sync.py:Orders --schema json --concurrency 20
chronicle consume --queue cus.12.deliver --syncer my_crm:sync --until-empty --max-time 5m
chronicle consume --queue orders --syncer shop/sync.py:Orders --on-failure retry:5 --retry-delay 5s,30s,5m
chronicle consume --queue orders --syncer sync.py:run --schema json --concurrency 10 --order field:customer.id
chronicle consume --queue cus.12.deliver --syncer my_crm:sync --time-limit 60s --rate 10/s
chronicle consume --queue orders --syncer sync.py:run --schema json --declare --exchange shop --ttl 1h
chronicle consume --url redis://localhost:6379/0 --queue orders --syncer shop/sync.py:Orders --schema json
chronicle consume --queue cus.12.deliver --syncer my_crm:sync --capture handled.jsonl
"""


@click.command(cls=Command, examples=EXAMPLES)
@options.where
@own_options("consume")
@options.work
@options.order
@options.outcome
@limit_options.consuming
@topology_options.consuming
@options.bounds
@options.lifecycle
@options.output
@options.capture
@options.bodies_as_json
@options.encrypt
@click.pass_context
def command(ctx: click.Context, /, **_: object) -> int:
    """Run a syncer over a queue.

    Each message is checked, decrypted and passed to the syncer. True acknowledges it; False gives it one more
    try, then it is dead-lettered. An exception, or any other return value, ends the process with code 1 and
    leaves the message in the queue.

    Exit codes: 0 done, 1 fatal, 2 usage or configuration, 3 broker unreachable, 4 stopped with unfinished
    messages given back, 128+n forced by a second signal.
    """
    where = options.where_of(ctx)
    work = options.work_of(ctx, where.prefetch)
    policy = options.policy_of(ctx)
    if where.notice:
        report.note(where.notice)
    topology_options.refuse_unhonoured(ctx, where.broker)
    declared = topology_options.declared_of(ctx, policy)
    report.warn(*where.warnings, *work.warnings, *topology_options.oddities(ctx, where, declared))

    output = options.output_of(ctx)
    syncer = load_syncer(work, output)
    connector = connector_of(
        where,
        work,
        policy,
        declare=declared,
        order=ctx.params["order"] or "",
        allow_drop=ctx.params["allow_drop"],
        brake=ctx.params["brake"],
    )
    connector = asked(connector, where.broker, ctx.params["management_url"])
    transport = open_transport(connector)
    bounds = options.bounds_of(ctx)
    refuse_what_it_cannot(transport.promises, policy, until_empty=bounds.until_empty)
    job = Job(
        syncer,
        pipeline_of(work, policy),
        policy,
        work.concurrency,
        work.prefetch,
        bounds,
        options.lifecycle_of(ctx, transport.promises.backoff),
        limit_options.limits_of(ctx),
        progress=progress_of(output),
    )
    observer = observe(output, where.queue, syncer, transport, ends=bounds.until_empty)
    return captured(ctx, job, transport, observer)


def captured(ctx: click.Context, job: Job, transport: Transport, observer: Observer) -> int:
    """Run the job, and write finished messages to the capture, if there is one."""
    path: str | None = ctx.params["capture"]
    if path is None:
        if typed(ctx, "encrypt") and ctx.params["encrypt"]:
            raise SettingError("--encrypt without --capture", "name the file with --capture FILE")
        refuse_typed(ctx, ("bodies_as_json",), "has no effect without --capture")
        return run(job, transport, observer)
    from chronicle.captures.file import open_capture
    from chronicle.captures.recorder import Recorder
    from chronicle_cli.passphrase import PassphraseSource

    secrets = PassphraseSource(os.environ, encrypt=ctx.params["encrypt"])
    file = open_capture(path, secrets.for_writing, tell=report.warn)
    capturing = Recorder(observer, file, path, readable=MAX_BODY if ctx.params["bodies_as_json"] else 0)
    job = replace(job, objection=capturing.objection)
    try:
        code = run(job, transport, capturing, capturing.attach)
    finally:
        with suppress(OSError):
            file.close()
    return code or (Exit.FATAL if capturing.failed else Exit.DONE)  # it may have failed with its last line
