"""What a test does to topics, with confluent-kafka: a short connection per call, so a restart is harmless."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from support.waiting import wait_for

PATIENCE: Final = 30.0
QUIET: Final = {"log_level": 0}  # it writes to stderr whenever a broker goes
NO_COORDINATOR: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
# What a new leader answers until it has heard of the others.
NEW_LEADER: Final = {
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it lies in a topic; a tombstone has no value."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int  # ms, whoever set it


@dataclass(frozen=True, slots=True)
class Member:
    """Who reads in a group, and the partitions of each topic that are assigned to it now."""

    id: str
    client: str
    partitions: Mapping[str, Sequence[int]]


@dataclass(slots=True)
class Topics:
    """Names, makes, fills, looks into and deletes topics; remembers them, to clear them away."""

    servers: str
    replication: int = 1
    create: Callable[[str, int], None] | None = None  # where nobody may create topics from outside
    made: list[str] = field(default_factory=list)

    def name(self, word: str = "topic") -> str:
        """A topic's name that nobody else uses; whoever makes the topic, it is cleared away."""
        self.made.append(f"chronicle.test.{word}.{secrets.token_hex(4)}")
        return self.made[-1]

    def make(self, topic: str, partitions: int = 3, **config: str | int) -> str:
        """An empty topic, ready for use; underscores in the names of its settings are dots."""
        if topic not in self.made:
            self.made.append(topic)
        if self.create is not None:
            self.create(topic, partitions)
            return topic
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, partitions, self.replication, config=settings)
        with self.admin() as admin:
            _done(admin.create_topics([new])[topic])
        wait_for(lambda: len(self.leaders(topic)) == partitions, PATIENCE, f"the partitions of {topic}")
        return topic

    def publish(
        self,
        topic: str,
        *values: bytes | None,
        keys: Sequence[bytes | None] = (),
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int = 0,
    ) -> list[tuple[int, int]]:
        """Append a record for each value; the partition and offset of each. Nothing is sent twice.

        A value may have its own key, and all have the same headers. Without a partition, the key decides.
        """
        with self.producer() as producer:
            places: dict[int, tuple[int, int]] = {}
            given: dict[str, Any] = {"headers": list(headers), "timestamp": timestamp}
            if partition is not None:
                given["partition"] = partition
            for number, value in enumerate(values):
                key = keys[number] if number < len(keys) else None
                told = partial(_delivered, places, number)
                producer.produce(topic, value, key, on_delivery=told, **given)
                producer.poll(0)
            if producer.flush(PATIENCE):
                raise AssertionError(f"not all records were in {topic} after {PATIENCE:g} s")
        return [places[number] for number in range(len(values))]

    def records(self, topic: str) -> list[Record]:
        """All that can be read in the topic, settled or not: one partition after the other, each in order."""
        settings: dict[str, str | int] = {
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "error",
        }
        deadline = time.monotonic() + PATIENCE
        found: list[Record] = []
        with self.consumer(f"looks.{secrets.token_hex(4)}", **settings) as consumer:
            # A consumer that knows the leaders need not wait half a second for them.
            open_ones = set(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in open_ones])
            while open_ones:
                for message in consumer.consume(1000, 0.05):
                    problem = message.error()
                    if problem is None:
                        found.append(_record(message))
                    elif problem.code() == KafkaError._PARTITION_EOF:
                        open_ones.discard(_known(message.partition()))
                    elif not problem.retriable():
                        raise KafkaException(problem)
                if time.monotonic() > deadline:
                    raise AssertionError(f"{topic} was not read to its end within {PATIENCE:g} s")
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def bodies(self, topic: str) -> list[bytes]:
        """The values of `records`; a tombstone's is empty."""
        return [record.value or b"" for record in self.records(topic)]

    def starts(self, topic: str) -> dict[int, int]:
        """The first offset of each partition that is still there."""
        return {number: low for number, (low, _) in self._bounds(topic).items()}

    def ends(self, topic: str) -> dict[int, int]:
        """The offset of each partition that the next record will have."""
        return {number: high for number, (_, high) in self._bounds(topic).items()}

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """The offset and the metadata that the group has committed, for each partition where it has."""
        wanted = [TopicPartition(topic, number) for number in self.leaders(topic)]
        found = self._coordinated(group, lambda consumer: consumer.committed(wanted, timeout=PATIENCE))
        return {one.partition: (one.offset, one.metadata or "") for one in found if one.offset >= 0}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int], metadata: str = "") -> None:
        """Commit these offsets for a group that nobody reads in."""
        wanted = [TopicPartition(topic, number, at, metadata) for number, at in offsets.items()]
        self._coordinated(group, lambda consumer: consumer.commit(offsets=wanted, asynchronous=False))

    def lag(self, group: str, topic: str) -> int:
        """How many offsets lie between what the group has committed, or the start, and the end."""
        done = self.committed(group, topic)
        return sum(
            high - done.get(number, (low, ""))[0] for number, (low, high) in self._bounds(topic).items()
        )

    def members(self, group: str) -> list[Member]:
        """Who reads in the group now; nobody in one that does not exist."""
        try:
            with self.admin() as admin:
                described = _done(admin.describe_consumer_groups([group])[group])
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return [Member(one.member_id, one.client_id, _by_topic(one.assignment)) for one in described.members]

    def leaders(self, topic: str) -> dict[int, int]:
        """The node that leads each partition, of those that have a leader."""
        with self.admin() as admin:
            found = admin.list_topics(topic, timeout=PATIENCE).topics[topic]
        return {number: part.leader for number, part in found.partitions.items() if part.leader >= 0}

    def exists(self, topic: str) -> bool:
        return topic in self.names()

    def names(self) -> list[str]:
        """All topics that are there, except Kafka's own."""
        with self.admin() as admin:
            return sorted(name for name in admin.list_topics(timeout=PATIENCE).topics if name[:2] != "__")

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition that lie before this offset, as retention does."""
        wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        with self.admin() as admin:
            for answer in admin.delete_records(wanted).values():
                _done(answer)

    def delete(self, *topics: str) -> None:
        """Delete these topics, whether they are there or not; returns when they are gone."""
        if self.create is not None or not topics:
            return  # a topic that was made elsewhere goes with its cluster
        with self.admin() as admin:
            # Naming one of them twice would crash the client.
            for answer in admin.delete_topics(list(set(topics))).values():
                try:
                    _done(answer)
                except KafkaException as problem:
                    if problem.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        wait_for(lambda: not set(topics) & set(self.names()), PATIENCE, f"the end of {', '.join(topics)}")

    def clear(self) -> None:
        """Delete the topics named or made here, and whatever is named after them."""
        if self.made:
            self.delete(*(name for name in self.names() if name.startswith(tuple(self.made))))
        self.made.clear()

    @contextmanager
    def admin(self, **settings: str | int | bool) -> Iterator[AdminClient]:
        """A client for what the other methods do not offer; what it was asked ends with it."""
        # Closed here, because librdkafka ends the process if Python's collector lets go of it on its thread.
        with AdminClient({"bootstrap.servers": self.servers, **QUIET, **settings}) as admin:
            yield admin

    @contextmanager
    def producer(self, **settings: str | int | bool) -> Iterator[Producer]:
        """A producer that fails when it would have to send something twice, unless told otherwise."""
        # An idempotent one would wait half a second for its number.
        config = {"bootstrap.servers": self.servers, "message.send.max.retries": 0, "linger.ms": 0}
        yield Producer({**config, **QUIET, **settings})

    @contextmanager
    def consumer(self, group: str, **settings: str | int | bool) -> Iterator[Consumer]:
        """A consumer of its own; it joins the group only when it subscribes."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, **QUIET, **settings})
        try:
            yield consumer
        finally:
            consumer.close()

    def _coordinated(
        self, group: str, question: Callable[[Consumer], list[TopicPartition] | None]
    ) -> list[TopicPartition]:
        """What the group's coordinator says; asked again while there is none, as after a failover."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.consumer(group) as consumer:
                    found = question(consumer) or []
                for one in found:
                    if one.error is not None:
                        raise KafkaException(one.error)
                return found
            except KafkaException as problem:
                if problem.args[0].code() not in NO_COORDINATOR or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        with self.consumer(f"looks.{secrets.token_hex(4)}") as consumer:
            return {number: _bounds_of(consumer, topic, number) for number in self.leaders(topic)}


def _bounds_of(consumer: Consumer, topic: str, number: int) -> tuple[int, int]:
    """Where a partition begins and ends; a leader that has just taken over does not know at once."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=PATIENCE)
        except KafkaException as problem:
            if problem.args[0].code() not in NEW_LEADER or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _done(answer: Future[Any]) -> Any:
    return answer.result(PATIENCE)


def _delivered(
    places: dict[int, tuple[int, int]], number: int, problem: KafkaError | None, message: Message
) -> None:
    if problem is not None:
        raise KafkaException(problem)
    places[number] = _known(message.partition()), _known(message.offset())


def _record(message: Message) -> Record:
    headers: Any = message.headers() or ()  # a list of pairs, whatever its annotation says
    return Record(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
        timestamp=message.timestamp()[1],
    )


def _by_topic(assignment: Any) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in assignment.topic_partitions if assignment is not None else ():
        found.setdefault(one.topic, []).append(one.partition)
    return {topic: sorted(numbers) for topic, numbers in found.items()}


def _known(number: int | None) -> int:
    assert number is not None
    return number
