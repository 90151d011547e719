"""What became of each message of a replay: counted, named, and compared between two syncers.

Rule: a message is identified by its file and line, kept in its delivery's handle; the transport of a replay
does not use handles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chronicle.captures.sources import Found
from chronicle.core.account import kind_of
from chronicle.core.deadletters.death import undead
from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, is_drop
from chronicle.core.settlement import Settlement
from chronicle.core.words import many, noun
from chronicle.engine.job import Objection
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer, label

SHOWN: Final = 20  # messages named in a table


class Place(NamedTuple):
    """Where a message was found."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{label(Path(self.file).name)}:{self.line}"


class End(NamedTuple):
    """How a message ended."""

    words: str
    action_id: int | None


def fresh(found: Found) -> Delivery:
    """The message as if it came for the first time: no try that was counted, also in headers, counts now."""
    again = found.delivery.with_headers(undead(found.delivery.headers))
    again.redelivered = False
    again.counted = 0
    again.handle = Place(found.file, found.line)
    return again


class ReplayReport:
    """Counts what became of each message, and passes everything on to the observer behind it."""

    def __init__(self, behind: Observer, *, remember: bool = False) -> None:
        self._behind = behind
        self._remember = remember
        self.counts: Counter[str] = Counter()
        self.ends: dict[Place, End] = {}  # only with `remember`
        self.failures: list[Settlement] = []
        self.failed = 0

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self._behind.event(name, level, text, **facts)

    def settled(self, batch: Sequence[Settlement]) -> None:
        self._behind.settled(batch)
        for settlement in batch:
            action = settlement.verdict.action
            if action in (Action.REQUEUE, Action.RETRY):
                continue  # it comes back, and only its final end counts
            words = f"{kind_of(settlement.outcome)}, {action}"
            self.counts[words] += 1
            if self._remember:
                self.ends[settlement.delivery.handle] = End(words, settlement.action_id)
            if not is_good(settlement):
                self.failed += 1
                if len(self.failures) < SHOWN:
                    self.failures.append(settlement)

    def tick(self, counters: Counters) -> None:
        self._behind.tick(counters)

    def close(self, counters: Counters) -> None:
        self._behind.close(counters)


def failures_in(tally: ReplayReport) -> Objection | None:
    """Why a replay has failed, if it has."""
    return Objection(f"{many(tally.failed, 'message')} failed") if tally.failed else None


def is_good(settlement: Settlement) -> bool:
    """The syncer said True, or dropped the message on purpose."""
    return isinstance(settlement.outcome, Synced) or is_drop(settlement.outcome)


def table(tally: ReplayReport) -> list[str]:
    """The outcomes, and the failures by name."""
    rows = [f"{count:>8}  {words}" for words, count in tally.counts.most_common()]
    total = tally.counts.total()
    lines = [f"{total:>8}  {noun(total, 'message')}", *rows]
    lines += [""] if tally.failures else []
    for settlement in tally.failures:
        where = _named(settlement.delivery.handle, settlement.action_id)
        lines.append(f"  {where}: {label(settlement.verdict.reason)}")
    lines += _and_more(tally.failed - len(tally.failures))
    return lines


def changed(old: ReplayReport, new: ReplayReport) -> list[Place]:
    """The messages that end differently with the second syncer, in order."""
    return sorted(place for place, end in old.ends.items() if new.ends[place].words != end.words)


def comparison(
    names: tuple[str, str], old: ReplayReport, new: ReplayReport, places: Sequence[Place]
) -> list[str]:
    """Both syncers' outcomes side by side, and the messages that changed by name."""
    heads = [label(name) for name in names]
    widths = [max(8, len(head)) for head in heads]
    lines = [f"{len(old.ends):>8}  {noun(len(old.ends), 'message')}, {len(places)} changed", ""]
    lines.append("  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for words in dict.fromkeys((*old.counts, *new.counts)):
        numbers = zip((old.counts[words], new.counts[words]), widths, strict=True)
        lines.append("  ".join(f"{number:>{width}}" for number, width in numbers) + f"  {words}")
    lines += [""] if places else []
    lines += _changes(old, new, places[:SHOWN])
    lines += _and_more(len(places) - SHOWN)
    return lines


def _changes(old: ReplayReport, new: ReplayReport, places: Sequence[Place]) -> Iterator[str]:
    for place in places:
        before, after = old.ends[place], new.ends[place]
        where = _named(place, before.action_id if after.action_id is None else after.action_id)
        yield f"  {where}: {before.words} → {after.words}"


def _named(place: Place, action_id: int | None) -> str:
    return f"{place}" if action_id is None else f"{place} action {action_id}"


def _and_more(number: int) -> list[str]:
    return [f"  … and {number} more"] if number > 0 else []
