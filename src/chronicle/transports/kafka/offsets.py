"""Where partitions begin and end, and how far a group is: questions to the brokers, with a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka.admin import OffsetSpec

from chronicle.core.frozen import frozen
from chronicle.transports.kafka.admin import Admin
from chronicle.transports.kafka.choices import Edge, Start
from chronicle.transports.kafka.group_offsets import GroupOffsets
from chronicle.transports.kafka.metadata import Position, read
from chronicle.transports.kafka.problems import explained

SPEC: Final[Any] = OffsetSpec  # which has no types
EARLIEST: Final = SPEC.earliest()
LATEST: Final = SPEC.latest()


@frozen
class Bounds:
    """One partition: where it begins and ends, and what is committed for the group."""

    partition: int
    start: int
    end: int
    committed: int | None = None
    metadata: str = ""

    @property
    def position(self) -> Position | None:
        """What is committed; nothing if it lies beyond the end, as of a topic that was made anew."""
        if self.committed is None or self.committed > self.end:
            return None
        return Position(self.committed, self.metadata)

    @property
    def begin(self) -> int:
        """The first record that may be unsettled."""
        return max(self.start, self.position.offset if self.position else 0)

    @property
    def waiting(self) -> int:
        """How many records are not settled, gaps counted."""
        begin, end = self.begin, self.end
        settled = read(*self.position) if self.position else ()
        done = sum(max(0, min(end, after) - max(begin, first)) for first, after in settled)
        return max(0, end - begin - done)


def offsets_at(admin: Admin, topic: str, numbers: Sequence[int], start: Start | None) -> dict[int, int]:
    """Where to begin reading these partitions; a time after the newest record is the end."""
    if start is None or start is Edge.START:
        return admin.offsets(topic, numbers, EARLIEST)
    ends = admin.offsets(topic, numbers, LATEST)
    if start is Edge.END:
        return ends
    found = admin.offsets(topic, numbers, SPEC.for_timestamp(start))
    return {number: offset if offset >= 0 else ends[number] for number, offset in found.items()}


def bounds_of(admin: Admin, topic: str, numbers: Sequence[int], group: GroupOffsets) -> list[Bounds]:
    """Where these partitions begin and end, and how far the group is. Raises ChronicleError."""
    positions = group.positions(numbers)
    starts, ends = (admin.offsets(topic, numbers, edge) for edge in (EARLIEST, LATEST))
    return [
        Bounds(number, starts[number], ends[number], *positions.get(number, (None, ""))) for number in numbers
    ]


def place_group(
    admin: Admin, topic: str, numbers: Sequence[int], group: GroupOffsets, start: Start | None
) -> None:
    """Where a group without any offsets begins, committed before it reads anything.

    So a partition that is added later is read from its beginning, and so is everything that comes between
    this run and the next. Raises ChronicleError.
    """
    if start is None or start is Edge.START or group.positions(numbers):
        return
    places = {
        number: Position(offset, "") for number, offset in offsets_at(admin, topic, numbers, start).items()
    }
    if (refused := group.commit(places)) is not None:
        raise explained(refused, admin.address, topic=topic)
