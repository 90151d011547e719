"""The partitions that are ours now, and what of them is in work.

Rule 1: a partition is ours from its assignment to its loss. Each assignment is a `Part` of its own with a
        ledger of its own: what comes from an older one is stale, however often the partition came back (K4).
Rule 2: the pump and the client's thread both come here, so everything is done under one lock, and nothing in
        here waits, except `wait_for_begun`, which is for the client's thread alone.
Rule 3: taking a partition back has two steps. `close`: nothing new begins. `remove`: it is over, and what was
        settled until then is what may be committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import Message

from chronicle.core.delivery import Delivery, Lease
from chronicle.transports.kafka.ledger import Ledger
from chronicle.transports.kafka.metadata import ROOM, Position
from chronicle.transports.kafka.records import delivery_of

SPAN: Final = 10_000  # offsets between the oldest record in work and the newest: beyond it, a partition waits
NARROW: Final = SPAN // 2  # it goes on when the span is down to this


class Record(Lease):
    """One record that was handed out: where it came from, and the permission to work on it."""

    __slots__ = ("at", "message", "offset", "part")

    def __init__(self, part: Part, message: Message, offset: int, at: float) -> None:
        super().__init__()
        self.part = part
        self.message = message
        self.offset = offset
        self.at = at  # when it was handed out


class Part:
    """One partition, for as long as it is ours."""

    def __init__(self, number: int, start: int | None = None, metadata: str = "") -> None:
        self.number = number
        self.ledger = Ledger(start, metadata)
        self.open: dict[int, Record] = {}
        # The last offset that the client brought, or that is done.
        self.newest: int | None = start - 1 if start is not None else None
        self.begun = False  # whether a record was handed out
        self.anew = False  # it was begun, or seen to begin again, since the topic was last looked at
        self.end = -1  # where the brokers last said that it ends
        self.closing = False  # nothing new begins
        self.over = False  # no longer ours
        self.kept: deque[Came] = deque()  # beyond the span: they wait for the oldest record
        self.held_back = False
        self.committed: Position | None = Position(start, metadata) if start is not None else None
        self.settled = 0  # records …
        self.safe = 0  # … of which the brokers know

    def reached(self, offset: int) -> None:
        """It ends here. Everything below has come; what is missing is a marker, or was compacted."""
        self.ledger.reached(offset)
        self.end = offset


# What the client brought: a record, or the word that a partition ends here; a named tuple costs thrice.
Came: TypeAlias = tuple[Part, Message]


class Commit(NamedTuple):
    """A position that is to be committed."""

    part: Part
    position: Position
    settled: int  # what the part's count was then

    def done(self) -> None:
        """The brokers have it."""
        self.part.committed, self.part.safe = self.position, self.settled


class Assignment:
    """The partitions of one topic that this member of the group has."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._parts: dict[int, Part] = {}
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self.known = False  # whether there has been an assignment at all, be it of nothing
        self.holds_back = False  # whether a partition waits for its oldest record

    # --- the client's thread --------------------------------------------------------------------------

    def add(self, parts: Iterable[Part]) -> None:
        with self._lock:
            self.known = True
            self._parts.update({part.number: part for part in parts})

    def part(self, number: int) -> Part | None:
        return self._parts.get(number)

    def parts(self) -> list[Part]:
        with self._lock:
            return list(self._parts.values())

    def numbers(self) -> list[int]:
        return [part.number for part in self.parts()]

    def close(self, numbers: Iterable[int]) -> list[Part]:
        """These are being taken away: what has not begun comes back unrun."""
        with self._lock:
            closing = [self._parts[number] for number in numbers if number in self._parts]
            for part in closing:
                part.closing = True
                for record in part.open.values():
                    record.end()
        return closing

    def wait_for_begun(self, parts: Sequence[Part], patience: float) -> int:
        """Wait until what has begun is settled, and no longer; how many are left."""
        until = monotonic() + patience
        with self._lock:
            while (left := sum(map(_begun, parts))) and (time := until - monotonic()) > 0:
                self._settled.wait(time)
        return left

    def remove(self, parts: Iterable[Part]) -> None:
        """They are no longer ours: late results are stale."""
        with self._lock:
            for part in parts:
                part.over = True
                for record in part.open.values():
                    record.end()
                if self._parts.get(part.number) is part:
                    del self._parts[part.number]

    def renew(self, part: Part) -> Part:
        """The partition begins anew at lower offsets: what was known of it is about other records.

        What may be committed for it is its beginning, even before anything comes: the offset that is
        committed would skip as many of the new records.
        """
        self.remove((part,))
        fresh = Part(part.number)
        fresh.ledger.reached(0)
        fresh.anew = True
        self.add((fresh,))
        return fresh

    def commits(self, parts: Iterable[Part] | None = None, room: int = ROOM) -> list[Commit]:
        """The positions that differ from what is committed; metadata of at most `room` characters."""
        with self._lock:
            wanted = []
            for part in self._parts.values() if parts is None else parts:
                watermark = part.ledger.watermark
                if watermark is not None:
                    position = Position(watermark, part.ledger.metadata(room))
                    if position != part.committed:
                        wanted.append(Commit(part, position, part.settled))
        return wanted

    def held_back(self) -> list[tuple[Part, float]]:
        """The partitions that wait for their oldest record, with the time since that was handed out."""
        with self._lock:
            return [(part, self._oldest(part)) for part in self._parts.values() if part.held_back]

    def _oldest(self, part: Part) -> float:
        offset = part.ledger.oldest_open
        record = part.open.get(offset) if offset is not None else None
        return record.at if record is not None else monotonic()

    # --- the pump -------------------------------------------------------------------------------------

    def hand_out(self, ready: deque[Came], room: int) -> list[Delivery]:
        """Deliveries of records that came, at most `room`; of what is not ours any more, none."""
        now = monotonic()
        out: list[Delivery] = []
        topic = self._topic
        with self._lock:
            while ready and len(out) < room:
                part, message = came = ready.popleft()
                if part.closing or part.over:
                    continue
                ledger = part.ledger
                if part.held_back or ledger.span >= SPAN:
                    part.held_back = self.holds_back = True
                    part.kept.append(came)
                    continue
                offset: int = message.offset()  # type: ignore[assignment]  # of what was fetched
                if message.error() is not None:
                    part.reached(offset)
                elif ledger.deliver(offset):
                    part.begun = True
                    record = part.open[offset] = Record(part, message, offset, now)
                    out.append(delivery_of(message, topic, record))
        return out

    def pass_ends(self, ready: deque[Came]) -> None:
        """Take in the words about ends that no record comes before."""
        with self._lock:
            while ready and ready[0][1].error() is not None:
                part, message = came = ready.popleft()
                if part.held_back:
                    part.kept.append(came)
                elif not part.over:
                    part.reached(message.offset() or 0)

    def settle(self, record: Record) -> bool:
        """Its offset counts as done; False if it is not ours any more."""
        with self._lock:
            part = record.part
            if part.over or part.open.pop(record.offset, None) is not record:
                return False
            part.ledger.settle(record.offset)
            part.settled += 1
            if part.closing:
                self._settled.notify_all()
        return True

    def leave(self, record: Record) -> bool:
        """It is not handled here: its offset stays uncommitted, and it comes again to whoever is next.

        False if it is not ours any more.
        """
        with self._lock:
            record.rest()
            if record.part.closing:
                self._settled.notify_all()
            return not record.part.over

    def let_go_on(self, ready: deque[Came]) -> None:
        """Give back to `ready` what was kept of partitions whose span is narrow again."""
        with self._lock:
            for part in self._parts.values():
                if part.held_back and part.ledger.span <= NARROW:
                    part.held_back = False
                    ready.extendleft(reversed(part.kept))
                    part.kept.clear()
            self.holds_back = any(part.held_back for part in self._parts.values())

    def has_seen(self, ends: Mapping[int, int]) -> bool:
        """Whether these partitions are ours, everything up to these ends has been handed out, and none kept.

        What had not begun of one that is being taken away is given back, and may come to us again.
        """
        with self._lock:
            return self._parts.keys() == ends.keys() and all(
                _has_seen(part, ends[part.number]) for part in self._parts.values()
            )


def _has_seen(part: Part, end: int) -> bool:
    """What was committed says nothing: the topic may have been made anew since, with fewer records."""
    seen = part.end >= end or (part.begun and part.ledger.next >= end)
    return seen and not part.kept and not part.closing


def _begun(part: Part) -> int:
    return sum(record.begun for record in part.open.values())
