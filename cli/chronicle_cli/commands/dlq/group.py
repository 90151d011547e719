"""`chronicle dlq`: see what died and why, and bring it back. Here: `list` and `show`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import click

from chronicle.core.deadletters.conditions import Condition, matches
from chronicle.core.deadletters.letter import letter_of
from chronicle.core.delivery import Delivery
from chronicle.core.record import dump, to_record
from chronicle.deadletters.reader import AHEAD
from chronicle.engine.job import Exit
from chronicle.engine.reconnect import TURN
from chronicle.transports.seam import Reader
from chronicle_cli import report
from chronicle_cli.commands.dlq import options as dlq_options
from chronicle_cli.commands.dlq.export import drop, export
from chronicle_cli.commands.dlq.options import Aim, aim_of
from chronicle_cli.commands.dlq.redrive import redrive
from chronicle_cli.commands.dlq.view import Shown, revealed, shown, summary, summary_lines
from chronicle_cli.help import Command, write_examples

AT_ONCE: Final = 20  # looked through before the connection has its turn again
EXAMPLES: Final = """
chronicle dlq list --queue cus.12.deliver
chronicle dlq show --queue cus.12.deliver --match id=1001
chronicle dlq redrive --queue cus.12.deliver --dry-run
chronicle dlq redrive --queue cus.12.deliver --match 'reason=timeout' --limit 100 --rate 50/s
chronicle dlq redrive --queue cus.12.deliver --verify my_crm:sync
chronicle dlq export --queue cus.12.deliver dead.jsonl
chronicle dlq drop --queue cus.12.deliver --match 'age>30d'
chronicle dlq list --url redis://localhost:6379/0 --queue orders
"""


class DlqGroup(click.Group):
    """A group with examples in its help."""

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(EXAMPLES, formatter)


@click.group(cls=DlqGroup)
def command() -> None:
    """See what died and why, and bring it back.

    A queue's dead letters are in QUEUE.dlq, unless --dlq names another queue. To look at them, chronicle
    receives them and returns them in order. The embedded queue is left exactly as it was; on Redis and Kafka
    nothing is even received, only read. RabbitMQ marks
    messages that were looked at as redelivered. A quorum queue counts every look as a delivery and drops a
    message beyond its limit, so one that was looked at often is republished to it, see --max-deliveries.

    No message content is shown without --reveal.
    """


command.add_command(redrive)
command.add_command(export)
command.add_command(drop)


@command.command("list", cls=Command, examples="chronicle dlq list --queue cus.12.deliver")
@dlq_options.where
@dlq_options.match
@dlq_options.limit("Look at this many, oldest first.", 1000)
@dlq_options.max_deliveries
@dlq_options.as_json
@click.pass_context
def listing(
    ctx: click.Context, /, conditions: tuple[Condition, ...], limit: int, as_json: bool, **_: Any
) -> int:
    """How many died, since when, and why.

    If there are many, only the oldest are looked at, and the output says so. For what looking does to a
    message on RabbitMQ, see chronicle dlq --help.
    """
    aim = aim_of(ctx)
    now = int(time.time() * 1000)
    with aim.read(limit, ctx.params["max_deliveries"]) as letters:
        seen = 0
        found: list[Shown] = []
        while seen < limit and (batch := letters.read(min(limit - seen, AT_ONCE), TURN)) is not None:
            seen += len(batch)
            looked_at = (shown(one, aim.queue, aim.max_body) for one in batch)
            found += [one for one in looked_at if matches(one.letter, conditions, now)]
    facts = summary(aim.queue, aim.dead, letters.present, seen, found)
    if as_json:
        report.data(dump(facts))
        return Exit.DONE
    for line in summary_lines(facts, now, oldest(found)):
        report.say(line)
    return Exit.DONE


@command.command("show", cls=Command, examples="chronicle dlq show --queue cus.12.deliver --match id=1001")
@dlq_options.where
@dlq_options.match
@dlq_options.limit("Show at most this many, oldest first.", 10)
@dlq_options.max_deliveries
@dlq_options.as_json
@dlq_options.reveal("Show everything, personal data included: body, all headers, properties.")
@click.pass_context
def show(
    ctx: click.Context,
    /,
    conditions: tuple[Condition, ...],
    limit: int,
    as_json: bool,
    reveal: bool,
    **_: Any,
) -> int:
    """Dead letters one by one: which, why, when, and where they came from.

    Without --reveal: ids, sizes, reasons, and the headers of chronicle and the broker. For what looking does
    to a message on RabbitMQ, see chronicle dlq --help.
    """
    aim = aim_of(ctx)
    now = int(time.time() * 1000)
    ahead = limit if not conditions else AHEAD
    count = 0
    with aim.read(ahead, ctx.params["max_deliveries"]) as letters:
        for delivery in matching(letters, aim, conditions, limit, now):
            count += 1
            one = shown(delivery, aim.queue, aim.max_body)
            tell(one, to_record(delivery, max_body=aim.max_body) if reveal else None, now, as_json=as_json)
    if not as_json:
        report.say(f"{count} shown of {letters.present} in {aim.dead}")
    if count and aim.marks:
        report.note(aim.marks)
    return Exit.DONE


def tell(one: Shown, record: dict[str, Any] | None, now: int, *, as_json: bool) -> None:
    """One dead letter; with its record, everything."""
    if as_json:
        report.data(dump(one.facts() | ({} if record is None else {"record": record})))
        return
    lines = [*one.lines(now), *(revealed(record) if record is not None else ()), ""]
    report.say(*lines)


def matching(
    letters: Reader, aim: Aim, conditions: tuple[Condition, ...], limit: int, now: int
) -> Iterator[Delivery]:
    """The oldest that match; only as many are looked at as needed."""
    found = 0
    while found < limit and (batch := letters.read(min(limit - found, AT_ONCE), TURN)) is not None:
        for delivery in batch:
            if matches(letter_of(delivery, aim.queue, aim.max_body), conditions, now):
                found += 1
                yield delivery


def oldest(found: list[Shown]) -> int | None:
    return min((one.letter.died for one in found if one.letter.died is not None), default=None)
