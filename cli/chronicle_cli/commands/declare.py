"""`chronicle declare`: plan what a queue needs, and create what is missing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

import click

from chronicle.core.topology import Binding, Exchange, Queue, Step
from chronicle.engine.job import Exit
from chronicle.engine.reconnect import reach
from chronicle.transports.catalog import declare_topology, planned_topology
from chronicle_cli import options, report, topology_options
from chronicle_cli.broker_options import own_options
from chronicle_cli.help import Command, Group, option
from chronicle_cli.log_levels import quiet_clients

EXAMPLES: Final = """
chronicle declare --url amqp://me@localhost/ --queue orders --exchange shop --routing-key 'order.*'
chronicle declare --url amqp://me@localhost/ --queue orders --ttl 5m --queue-type quorum
chronicle declare --url amqp://me@localhost/ --queue orders --retry-delay 5s,30s,5m --dry-run
chronicle declare --url amqp://me@localhost/ --queue orders --retry-delay 5s,30s,5m --only-retry
chronicle declare --queue demo
"""


@click.command(cls=Command, examples=EXAMPLES)
@options.where
@own_options("declare")
@topology_options.shape
@options.retry_delay
@options.startup_timeout
@option(
    Group.TOPOLOGY, "--only-retry", is_flag=True, envvar="CHRONICLE_ONLY_RETRY",
    help="Create only the retry queues; the queue itself must exist, and is not changed.",
)  # fmt: skip
@option(
    Group.TOPOLOGY, "--dry-run", is_flag=True, envvar="CHRONICLE_DRY_RUN",
    help="Print the plan; connect to nothing, create nothing.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, dry_run: bool, **_: Any) -> int:
    """Create a queue and what it needs: dead-letter exchange and queue, retry queues, bindings.

    The plan is printed first. Then everything is checked, and only what is missing is created. What exists
    and matches is left alone; if anything exists but differs, the command says what, changes nothing and ends
    with code 2. It never deletes. For a queue that someone else created, with its own arguments,
    --only-retry adds the retry queues and nothing else.
    """
    where = options.where_of(ctx)
    topology_options.refuse_unhonoured(ctx, where.broker)
    wishes = topology_options.wishes_of(ctx, where.broker)
    connector = replace(where.connector(), declare=wishes)
    steps = planned_topology(connector)
    report.note(where.notice)
    report.warn(*where.warnings)
    report.say(f"the plan for {where.queue}:")
    for step in steps:
        report.say(f"  {described(step)}")
    if dry_run:
        report.say("nothing was created")
        return Exit.DONE
    quiet_clients()
    for step, done in reach(partial(declare_topology, connector), ctx.params["startup_timeout"], report.warn):
        report.done(f"{done}: {step}")
    return Exit.DONE


def described(step: Step) -> str:
    """A step with all its details."""
    match step:
        case Exchange(foreign=True):
            return f"{step}, of any type; {step.kind} and durable if it is missing"
        case Exchange():
            return f"{step}, {step.kind}, durable"
        case Queue(foreign=True):
            return f"{step}, as it is"
        case Queue(arguments=arguments, durable=durable):
            lasts = {True: ["durable"], False: ["not durable"], None: []}[durable]
            return ", ".join((str(step), *lasts, *(f"{name}={value}" for name, value in arguments.items())))
        case Binding(routing_key=key):
            return f"{step}, routing key {key}"
