"""How many records of our partitions were not handed out yet, from what the client knows anyway.

A fetch brings the end of its partition along, so nobody has to ask the brokers; while a partition is paused,
its end is as of the last fetch.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chronicle.transports.kafka.assignment import Assignment, Part

EVERY: Final = 1.0  # seconds between two looks


class DepthGauge:
    """What is behind the last record that was handed out, of all partitions together."""

    def __init__(self, topic: str) -> None:
        self.known: int | None = None
        self.wanted = False  # somebody has looked at it since
        self._topic = topic
        self._look_at = 0.0

    def look(self, consumer: Consumer, assignment: Assignment, now: float) -> None:
        """Add it up, if it is time; a partition that was not fetched yet leaves it as it was."""
        if now < self._look_at:
            return
        self._look_at = now + EVERY
        self.wanted = False
        behind = [self._behind(consumer, part) for part in assignment.parts()]
        if None not in behind:
            self.known = sum(number for number in behind if number is not None)

    def _behind(self, consumer: Consumer, part: Part) -> int | None:
        try:
            bounds = consumer.get_watermark_offsets(TopicPartition(self._topic, part.number), cached=True)
        except KafkaException:
            return None
        low, high = bounds
        if high < 0:
            return None
        return max(0, high - max(low, part.ledger.next))
