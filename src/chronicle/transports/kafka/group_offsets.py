"""What a group has committed, read and moved by somebody who is no member of it.

Rule 1: every question has a bound. The client's own synchronous commit has none: a broker that is there and
        does not answer holds it up for as long as that lasts. So does closing a client that waits for such an
        answer; that is left to a thread of its own.
Rule 2: the admin client is not asked about groups: when it gives up on a group's coordinator and the answer
        comes all the same, librdkafka aborts the process (its issues 3663 and 4605).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chronicle.core.notice import Notice
from chronicle.transports.kafka.address import address_of, consumer_config
from chronicle.transports.kafka.chatter import Chatter
from chronicle.transports.kafka.metadata import Position
from chronicle.transports.kafka.problems import Witness, built, error_in
from chronicle.transports.seam import Connector

ANSWER_TIMEOUT: Final = 10.0  # seconds
TURN: Final = 0.001  # seconds between two looks for the answer: a poll does not end when it comes
AT_ONCE: Final = 100  # partitions; three hundred of them, with all the metadata they may have, are refused
CLOSING: Final = 1.0  # seconds that a client may take to close before it is left to itself


class GroupOffsets:
    """One group and one topic; the group must have no members when something is committed."""

    def __init__(self, connector: Connector, group: str, notices: deque[Notice]) -> None:
        address = address_of(connector.url, connector.extras)
        self._topic = connector.queue
        self._group = group
        self._witness = Witness(address)
        self._answers: list[tuple[KafkaError | None, Sequence[TopicPartition]]] = []
        self._silent = False
        # It has no partitions, so a poll brings nothing but answers.
        self._client: Consumer = built(
            Consumer,
            {
                **consumer_config(address, connector.tls, connector.tag, group),
                "error_cb": self._witness,
                "on_commit": self._on_commit,
            },
            address,
            logger=Chatter(address, notices),
        )

    def positions(self, numbers: Iterable[int]) -> dict[int, Position]:
        """What is committed, for those of the partitions where something is. Raises ChronicleError."""
        asked = [TopicPartition(self._topic, number) for number in numbers]
        try:
            answers = self._client.committed(asked, timeout=ANSWER_TIMEOUT)
        except KafkaException as exception:
            self._client.poll(0)
            raise self._witness.problem(error_in(exception), self._topic, self._group) from None
        for one in answers:
            if one.error is not None:
                raise self._witness.problem(one.error, self._topic, self._group)
        return {one.partition: Position(one.offset, one.metadata or "") for one in answers if one.offset >= 0}

    def commit(self, positions: Mapping[int, Position]) -> KafkaError | None:
        """Commit these; why the broker refuses, if it does. BrokerUnreachable: it may have taken them."""
        offsets = [
            TopicPartition(self._topic, number, offset, metadata)
            for number, (offset, metadata) in positions.items()
        ]
        batches = (offsets[first : first + AT_ONCE] for first in range(0, len(offsets), AT_ONCE))
        return next(filter(None, map(self._commit, batches)), None)

    def _commit(self, offsets: list[TopicPartition]) -> KafkaError | None:
        self._answers.clear()
        try:
            self._client.commit(offsets=offsets, asynchronous=True)
        except KafkaException as exception:
            return error_in(exception)
        until = monotonic() + ANSWER_TIMEOUT
        while not self._answers:
            self._client.poll(TURN)
            if not self._answers and monotonic() >= until:
                self._silent = True
                raise self._witness.silence()
        error, answers = self._answers[0]
        return error or next((one.error for one in answers if one.error is not None), None)

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        self._answers.append((error, partitions))

    def close(self) -> None:
        """Let go. A client that waits for an answer is closed when it comes."""

        def close() -> None:
            with suppress(KafkaException, RuntimeError):
                self._client.close()

        closing = threading.Thread(target=close, name="kafka-group-offsets-close", daemon=True)
        closing.start()
        closing.join(0.0 if self._silent else CLOSING)
