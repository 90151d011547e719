"""The group's word: partitions come and go, inside a poll of the client's thread.

Rule 1 (K4): a partition that is taken away is closed for new work; what has begun may finish for a bounded
        time; then its position is committed, if it is still one of the same topic, and it is over. Of one
        that was lost nothing is committed.
Rule 2: a partition begins where its group has committed, with what was settled beyond; without a commit, at
        its beginning. (A new group was placed before: offsets.py.)
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from chronicle.transports.kafka.assignment import Assignment, Part
from chronicle.transports.kafka.commits import Commits
from chronicle.transports.kafka.letters import Letters
from chronicle.transports.kafka.pauses import Pauses
from chronicle.transports.kafka.problems import error_in
from chronicle.transports.kafka.reports import ASSIGNED, LOST, REVOKED, Reports

GRACE: Final = 20.0  # seconds that syncers may still take when their partition is taken away
ANSWER: Final = 10.0  # seconds that the brokers have to say what is committed
LOOK: Final = 0.05  # seconds between two looks at the dead letters meanwhile
POLL_INTERVAL: Final = 300_000  # milliseconds, librdkafka's default
NUMBER: Final = re.compile(r"\s*\+?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)


class Membership:
    """This consumer as a member of its group."""

    def __init__(
        self,
        config: Mapping[str, Any],
        assignment: Assignment,
        commits: Commits,
        pauses: Pauses,
        letters: Letters,
        reports: Reports,
        trouble: Callable[[KafkaError], None],
        look_soon: Callable[[], None],
        look_now: Callable[[], object],
    ) -> None:
        self.ending = False  # nobody waits for syncers any more
        self._assignment = assignment
        self._commits = commits
        self._pauses = pauses
        self._letters = letters
        self._reports = reports
        self._trouble = trouble
        self._look_soon = look_soon  # whether the topic was made anew …
        self._look_now = look_now  # … where what is committed next would be of the old one
        self._one_by_one = _is_one_by_one(config)
        self._grace = min(GRACE, _number(config.get("max.poll.interval.ms", POLL_INTERVAL)) / 2000)

    def join(self, consumer: Consumer, topic: str) -> None:
        consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        placed = [_placed(one) for one in self._committed(consumer, partitions)]
        if self._assignment.known:  # it may be another topic by now
            for part, start in placed:
                # What is committed may be of the old one; what begins at the beginning is of the new one.
                part.anew = start.offset == OFFSET_BEGINNING
            self._look_soon()
        self._assignment.add(part for part, _ in placed)
        starts = [start for _, start in placed]
        if self._one_by_one:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        numbers = [part.number for part, _ in placed]
        self._pauses.begin(consumer, numbers)
        self._tell(ASSIGNED, logging.INFO, "assigned", numbers)
        self._reports.wake()

    def _committed(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The same with what is committed for them."""
        try:
            return consumer.committed(partitions, timeout=ANSWER)
        except KafkaException as error:
            self._trouble(error_in(error))
            # The client asks again where to begin; only what is settled beyond that is done once more.
            return [TopicPartition(one.topic, one.partition, OFFSET_STORED) for one in partitions]

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        parts = self._assignment.close(numbers)
        self._reports.wake()
        left = 0
        if not self.ending:
            left = self._wait_for_begun(parts)
            self._look_now()
            parts = self._assignment.close(numbers)
        self._assignment.remove(parts)
        self._commits.now(consumer, parts)
        self._unassign(consumer, partitions)
        if not self.ending:
            text = f"taken away; {left} in work come again elsewhere" if left else "taken away"
            level = logging.WARNING if left else logging.INFO
            self._tell(REVOKED, level, text, numbers)

    def _wait_for_begun(self, parts: Sequence[Part]) -> int:
        """Wait for what has begun; how many have not finished in time."""
        until = monotonic() + self._grace
        while True:
            self._letters.serve()
            left = self._assignment.wait_for_begun(parts, LOOK)
            if not left or self.ending or self._letters.problem is not None or monotonic() >= until:
                return left

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        self._assignment.remove(self._assignment.close(numbers))
        self._unassign(consumer, partitions)
        text = "lost: somebody else may have them already"
        self._tell(LOST, logging.WARNING, text, numbers)

    def _tell(self, event: str, level: int, text: str, numbers: Sequence[int]) -> None:
        self._reports.partitions(event, level, text, numbers, held=len(self._assignment.numbers()))

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._pauses.forget([one.partition for one in partitions])
        if self._one_by_one:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


def _placed(committed: TopicPartition) -> tuple[Part, TopicPartition]:
    """The partition with its ledger, and where to begin reading it."""
    topic, number, offset = committed.topic, committed.partition, committed.offset
    if committed.error is not None or offset == OFFSET_STORED:
        return Part(number), TopicPartition(topic, number, OFFSET_STORED)
    if offset < 0:
        return Part(number), TopicPartition(topic, number, OFFSET_BEGINNING)
    return Part(number, offset, committed.metadata or ""), TopicPartition(topic, number, offset)


def _number(setting: object) -> int:
    """A setting that librdkafka has taken. It reads as C does: 0x493e0, 01117740, 300000ms."""
    found = NUMBER.match(str(setting))
    if found is None:
        return POLL_INTERVAL
    digits = found[1]
    return int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)


def _is_one_by_one(config: Mapping[str, Any]) -> bool:
    """Whether partitions come and go one by one, and not all at once (KIP-429, KIP-848)."""
    protocol, strategy = config.get("group.protocol", ""), config.get("partition.assignment.strategy", "")
    return str(protocol).lower() == "consumer" or "cooperative" in str(strategy).lower()
