"""Partitions that bring nothing for now.

Rule: a pause throws away what the client has fetched, so it is for what takes long: no room for a second, a
        partition that waits for its oldest record, a consumer that stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition


class Pauses:
    """Knows which partitions are paused; the client does not tell. On the client's thread."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._paused: set[int] = set()

    def pause(self, consumer: Consumer, numbers: Iterable[int]) -> None:
        if new := set(numbers) - self._paused:
            self._paused |= new
            with suppress(KafkaException):  # one that was just taken away
                consumer.pause(self._partitions(new))

    def resume(self, consumer: Consumer, but: Iterable[int] = ()) -> None:
        """Let everything flow but these."""
        if going := self._paused.difference(but):
            self._paused -= going
            with suppress(KafkaException):
                consumer.resume(self._partitions(going))

    def begin(self, consumer: Consumer, numbers: Iterable[int]) -> None:
        """These were assigned: pauses outlive a rebalance inside the client, and here they do not (K3)."""
        if new := set(numbers):
            self._paused -= new
            with suppress(KafkaException):
                consumer.resume(self._partitions(new))

    def forget(self, numbers: Iterable[int]) -> None:
        self._paused.difference_update(numbers)

    def _partitions(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]
