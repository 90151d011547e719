"""Puts messages on a topic, confirmed.

Rule 1 (K5): every record is confirmed by all replicas in sync; a batch is done when all its reports are in.
        The client repeats by itself what it does not know the fate of, and the brokers take it once.
Rule 2: what cannot be sent is found before the first record of its batch is sent.
Rule 3 (K1): the topic must exist: publishing creates none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chronicle.core.body import parse
from chronicle.errors import BrokerRefused, ChronicleError, ConnectionLost, InvalidMessage
from chronicle.transports.kafka.address import address_of, producer_config
from chronicle.transports.kafka.chatter import Chatter
from chronicle.transports.kafka.choices import choices_of
from chronicle.transports.kafka.problems import PASSING, Witness, built, error_in, explained, reason
from chronicle.transports.kafka.records import Headers, record_of
from chronicle.transports.kafka.topology import check_target
from chronicle.transports.seam import Connector, Outgoing, never, nothing

TURN: Final = 0.1  # seconds between two looks at what goes on beside a wait
CONFIRM_TIMEOUT: Final = 30.0  # seconds without a confirmation
TIMEOUTS: Final = ("message.timeout.ms", "delivery.timeout.ms")  # what an operator may call it
GRACE: Final = 10.0  # seconds that the client's own report may be late
OVERHEAD: Final = 512  # bytes around a record that is alone in its batch
FRAME: Final = 16  # bytes around a header
BATCH: Final = 1_000_000  # bytes that librdkafka sends together
LEAST: Final = 1_000  # the smallest message.max.bytes that it takes
LARGEST: Final = 1_000_000_000

Record = tuple[bytes | None, bytes | None, Headers]


class KafkaPublisher:
    """One producer, polled only while a caller waits for it."""

    def __init__(self, connector: Connector, stopping: Callable[[], bool] = never) -> None:
        self.confirmed = 0  # messages on the topic for certain, those of a failed batch included
        self._address = address_of(connector.url, connector.extras)
        self._choices = choices_of(connector.choices, connector.queue)
        self._connector = connector
        self._stopping = stopping
        self._witness = Witness(self._address)
        self._producer: Producer | None = None
        self._largest = BATCH
        self._patience = patience_of(self._address.settings)
        self._waiting = 0
        self._failed: KafkaError | None = None

    def __enter__(self) -> Self:
        self._connect(self._stopping)
        return self

    def __exit__(self, *exc: object) -> None:
        self._let_go()

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        records = [self._record(message) for message in batch]
        producer = self._producer or self._connect(never)
        self._failed, self._waiting = None, 0
        try:
            for key, value, headers in records:
                self._produce(producer, key, value, headers, meanwhile)
            # Even after a refusal the others are waited for: the count at the end must be exact.
            until = monotonic() + self._patience + GRACE
            while self._waiting and monotonic() < until:
                producer.poll(TURN)
                meanwhile()
        except BaseException:
            self._let_go()
            raise
        if self._waiting:
            self._let_go()
            raise ConnectionLost(f"{self._address.place}: the client does not answer")
        if self._failed is not None:
            raise self._problem(self._failed, len(batch))

    def _record(self, message: Outgoing) -> Record:
        key, value, headers = record_of(message)
        if self._choices.key:
            key = key_in(message.body, self._choices.key, message.place)
        size = len(key or b"") + len(value or b"")
        size += sum(len(name.encode()) + len(header or b"") + FRAME for name, header in headers)
        if size > self._largest:
            raise InvalidMessage(
                f"the message has {size} bytes, and the topic takes records of at most {self._largest}"
            )
        return key, value, headers

    def _produce(
        self,
        producer: Producer,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        meanwhile: Callable[[], None],
    ) -> None:
        while True:
            try:
                producer.produce(
                    self._connector.queue,
                    value=value,
                    key=key,
                    headers=list(headers),
                    on_delivery=self._report,
                )
            except BufferError:  # the client has no room before some are confirmed
                producer.poll(TURN)
                meanwhile()
            except KafkaException as exception:
                self._failed = self._failed or error_in(exception)
                return
            else:
                self._waiting += 1
                return

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        self._waiting -= 1
        if error is None:
            self.confirmed += 1
        else:
            self._failed = self._failed or error

    def _problem(self, error: KafkaError, batch: int) -> ChronicleError:
        """What a record's failure means; what a broker may have taken all the same is uncertain."""
        where, queue = self._address.place, self._connector.queue
        if error.fatal():
            self._let_go()
        match error.code():
            case KafkaError.MSG_SIZE_TOO_LARGE | KafkaError.RECORD_LIST_TOO_LARGE:
                text = f"{where}: a message is larger than the topic {queue!r} takes (max.message.bytes)"
                return InvalidMessage(text) if batch == 1 else BrokerRefused(text, "leave it out")
            case KafkaError.INVALID_RECORD:
                return BrokerRefused(
                    f"{where}: the topic {queue!r} does not take such a record",
                    "a compacted topic takes only records with a key: use --key PATH",
                )
            case code if code in PASSING:
                refused = self._witness.refused
                return refused or ConnectionLost(f"{where}: {reason(error)}")
        return explained(error, self._address, topic=queue)

    def _connect(self, stopping: Callable[[], bool]) -> Producer:
        """Check the topic, and make a producer for records of its size."""
        limit = check_target(self._connector, stopping)
        settings = self._address.settings
        config: dict[str, Any] = {TIMEOUTS[0]: round(CONFIRM_TIMEOUT * 1000)}
        if limit is not None and "message.max.bytes" not in settings:
            self._largest = min(max(limit - OVERHEAD, LEAST), LARGEST)
            config["message.max.bytes"] = self._largest
            config["batch.size"] = min(self._largest, BATCH)
        elif "message.max.bytes" in settings:
            self._largest = LARGEST  # the operator knows; librdkafka sees to it
        self._witness = Witness(self._address)
        config |= producer_config(self._address, self._connector.tls, f"{self._connector.tag}-publisher")
        self._producer = built(
            Producer,
            {**config, "error_cb": self._witness},
            self._address,
            logger=Chatter(self._address, deque(maxlen=1)),
        )
        return self._producer

    def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)


def patience_of(settings: Mapping[str, str]) -> float:
    """How long the client tries to get a record confirmed, in seconds; its 0 means for ever."""
    asked = next((settings[name] for name in TIMEOUTS if name in settings), "")
    if not asked.isdigit() or len(asked) > 12:  # librdkafka complains about what is no number
        return CONFIRM_TIMEOUT
    return int(asked) / 1000 or float("inf")


def key_in(body: bytes, path: Sequence[str], place: str = "") -> bytes:
    """The field of a JSON message that becomes the record's key; InvalidMessage if it has none."""
    found = parse(body, len(body))
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, str) and found:
        try:
            return found.encode()
        except UnicodeEncodeError:
            pass
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found).encode()
    where = f"{place}: " if place else ""
    raise InvalidMessage(f"{where}the message has no text or number in {'.'.join(path)}, for its key")
