"""`chronicle replay`: run a syncer over captured messages or plain JSON files, no broker."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Asked, Synced
from chronicle.core.record import dump, to_record
from chronicle.core.settlement import Settlement
from chronicle.errors import Drop, SettingError
from chronicle.runtime.job import Bounds, Exit, Job, Lifecycle
from chronicle.runtime.loader import load
from chronicle.runtime.sources import read_messages
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer, label
from chronicle.transports.memory import MemoryTransport
from chronicle_cli import options, report
from chronicle_cli.help import Command
from chronicle_cli.running import observe, pipeline_of, run

EXAMPLES = """
chronicle replay --syncer my_crm:sync messages/
chronicle replay --syncer my_crm:sync --keys keys.json capture.jsonl --dead-letters failed.jsonl
chronicle replay --syncer chronicle_syncers.console:sync --schema json - < orders.jsonl
"""
SHOWN = 20  # failures named in the table


class Tally:
    """Counts what became of each message, and passes everything on to the observer behind it."""

    def __init__(self, behind: Observer) -> None:
        self._behind = behind
        self.ends: Counter[str] = Counter()
        self.failures: list[Settlement] = []
        self.failed = 0

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self._behind.event(name, level, text, **facts)

    def settled(self, batch: Sequence[Settlement]) -> None:
        self._behind.settled(batch)
        for settlement in batch:
            action = settlement.verdict.action
            if action in (Action.REQUEUE, Action.RETRY):
                continue  # it comes back, and that end counts
            self.ends[f"{type(settlement.outcome).__name__.lower()}, {action}"] += 1
            if not is_good(settlement):
                self.failed += 1
                if len(self.failures) < SHOWN:
                    self.failures.append(settlement)

    def tick(self, counters: Counters) -> None:
        self._behind.tick(counters)

    def close(self, counters: Counters) -> None:
        self._behind.close(counters)


def is_good(settlement: Settlement) -> bool:
    """The syncer said True, or dropped the message on purpose."""
    outcome = settlement.outcome
    return isinstance(outcome, Synced) or (isinstance(outcome, Asked) and isinstance(outcome.ask, Drop))


@click.command(cls=Command, examples=EXAMPLES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--dead-letters",
    metavar="FILE",
    envvar="CHRONICLE_DEAD_LETTERS",
    show_envvar=True,
    help="Write messages that end in the dead letters here, one record per line (mode 600).",
)
@options.work
@options.outcome
@options.output
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], dead_letters: str | None, **_: object) -> int:
    """Run a syncer over captured messages or plain JSON files, no broker.

    A PATH is a file with one message, a file of JSON lines (plain messages or captured records), a folder of
    such files, or - for standard input. The verdicts are those of `consume`: a failed message gets its second
    try in memory. Ends with code 1 if any message failed.
    """
    work, policy = options.work_of(ctx), options.policy_of(ctx)
    report.warn(*work.warnings)
    syncer = load(work.syncer, work.app_dir)
    messages = (fresh(delivery) for delivery in read_messages(paths, queue="replay"))
    with DeadLetterFile(dead_letters) as file:
        transport = MemoryTransport(messages, on_dead_letter=file.write, place="files")
        tally = Tally(observe(options.output_of(ctx), "replay", syncer.name, transport))
        job = Job(
            syncer,
            pipeline_of(work, policy),
            policy,
            work.concurrency,
            work.prefetch,
            Bounds(until_empty=True),
            Lifecycle(),
        )
        code = run(job, transport, tally)
    click.echo(table(tally))
    return code or (Exit.FATAL if tally.failed else Exit.DONE)


def fresh(delivery: Delivery) -> Delivery:
    """As if it came for the first time: what happened to it at the broker was another run."""
    again = copy.copy(delivery)
    again.redelivered = False
    again.counted = 0
    return again


class DeadLetterFile:
    """Where `--dead-letters` go: created only for its owner, because bodies are personal data."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> DeadLetterFile:
        if self._path is not None:
            try:
                number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise SettingError(
                    f"--dead-letters {self._path}: {error.strerror}", "name a file that can be written"
                ) from None
            self._file = os.fdopen(number, "ab")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, settlement: Settlement) -> None:
        if self._file is not None:
            why = {"reason": settlement.verdict.reason, "attempts": settlement.delivery.attempts}
            self._file.write(dump(to_record(settlement.delivery, why)) + b"\n")
            self._file.flush()


def table(tally: Tally) -> str:
    """The outcomes, and the failures by name."""
    rows = [f"{count:>8}  {end}" for end, count in tally.ends.most_common()]
    lines = [f"{sum(tally.ends.values()):>8}  messages", *rows]
    lines += [""] if tally.failures else []
    lines += list(_failures(tally))
    return "\n".join(lines)


def _failures(tally: Tally) -> Iterator[str]:
    for settlement in tally.failures:
        origin = settlement.delivery.origin
        place = label(str(Path(str(origin.get("file", settlement.delivery.queue))).name))
        line = f":{origin['line']}" if "line" in origin else ""
        action = f" action {settlement.action_id}" if settlement.action_id is not None else ""
        yield f"  {place}{line}{action}: {label(settlement.verdict.reason)}"
    if tally.failed > len(tally.failures):
        yield f"  … and {tally.failed - len(tally.failures)} more"
