"""Where partitions begin and end, and how far a group is: questions to the brokers, with a bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chronicle.transports.kafka.choices import Edge, Start
from chronicle.transports.kafka.metadata import Position, read

ANSWER_TIMEOUT: Final = 10.0  # seconds
BEGIN: Final = -2  # what ListOffsets calls the oldest record that is there …
END: Final = -1  # … and the place after the newest


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition: where it begins and ends, and what is committed for the group."""

    partition: int
    start: int | None = None
    end: int | None = None
    committed: int | None = None
    metadata: str = ""

    @property
    def unknown(self) -> bool:
        """The brokers did not say."""
        return self.end is None

    @property
    def position(self) -> Position | None:
        """What is committed; nothing if it lies beyond the end, as of a topic that was made anew."""
        if self.committed is None or self.committed > (self.end or 0):
            return None
        return Position(self.committed, self.metadata)

    @property
    def begin(self) -> int:
        """The first record that may be unsettled."""
        return max(self.start or 0, self.position.offset if self.position else 0)

    @property
    def waiting(self) -> int:
        """How many records are not settled, gaps counted."""
        begin, end = self.begin, self.end or 0
        settled = read(*self.position) if self.position else ()
        done = sum(max(0, min(end, after) - max(begin, first)) for first, after in settled)
        return max(0, end - begin - done)


def partitions_of(consumer: Consumer, topic: str, timeout: float = ANSWER_TIMEOUT) -> list[int]:
    """The numbers of a topic's partitions; empty if there is no such topic. Raises KafkaException."""
    found = consumer.list_topics(topic, timeout=timeout).topics.get(topic)
    if found is None or found.error is not None:
        return []
    return sorted(found.partitions)


def offsets_at(
    consumer: Consumer, topic: str, numbers: Iterable[int], time: int, timeout: float = ANSWER_TIMEOUT
) -> dict[int, int]:
    """The offset of the first record from this time on, in milliseconds; or BEGIN, or END."""
    asked = [TopicPartition(topic, number, time) for number in numbers]
    answers = consumer.offsets_for_times(asked, timeout=timeout) if asked else []
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {answer.partition: answer.offset for answer in answers}


def bounds_of(
    consumer: Consumer, topic: str, numbers: Sequence[int], timeout: float = ANSWER_TIMEOUT
) -> list[Bounds]:
    """Where these partitions begin and end, and how far the consumer's group is. Raises KafkaException."""
    if not numbers:
        return []
    committed = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=timeout)
    starts = offsets_at(consumer, topic, numbers, BEGIN, timeout)
    ends = offsets_at(consumer, topic, numbers, END, timeout)
    found = []
    for one in committed:
        if one.error is not None:
            raise KafkaException(one.error)
        offset = one.offset if one.offset >= 0 else None
        number = one.partition
        found.append(Bounds(number, starts[number], ends[number], offset, one.metadata or ""))
    return found


def time_of(start: Start | None) -> int:
    """What to ask the brokers for, to begin there."""
    if start is None or start is Edge.START:
        return BEGIN
    return END if start is Edge.END else start


def place_group(consumer: Consumer, topic: str, numbers: Sequence[int], start: Start | None) -> None:
    """Where a group without any offsets begins, committed before it reads anything.

    So a partition that is added later is read from its beginning, and so is everything that comes between
    this run and the next. Raises KafkaException.
    """
    partitions = [TopicPartition(topic, number) for number in numbers]
    time = time_of(start)
    if time == BEGIN or any(one.offset >= 0 for one in consumer.committed(partitions, ANSWER_TIMEOUT)):
        return
    begin = offsets_at(consumer, topic, numbers, time)
    late = offsets_at(consumer, topic, [number for number in numbers if begin[number] < 0], END)
    places = [TopicPartition(topic, number, late.get(number, begin[number])) for number in numbers]
    for answer in consumer.commit(offsets=places, asynchronous=False) or ():
        if answer.error is not None:
            raise KafkaException(answer.error)
