"""Topics of a Kafka of our own: how they are made, filled, and watched from the outside.

A broker does not tell when it hands out the first record. The clock starts when the group has shared out the
partitions, from when on records may come: some milliseconds too early, and the same for everybody. It stops
when the offsets that the group has committed are at the end.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.filling import Load
from benchmarks.watching import Moment
from support.kafka_server import JARS, KafkaServer
from support.topics import QUIET

PARTITIONS: Final = 3
KEYS: Final = 1000  # so many people, whose actions take turns
TIMEOUT: Final = 60.0


@dataclass(slots=True)
class AtKafka:
    """Topics that one group each reads; the group has the name that chronicle would give it."""

    server: KafkaServer
    client: Consumer = field(init=False)  # both are kept: the watch asks many times a second
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        config: dict[str, str | int | float | bool] = {"bootstrap.servers": self.server.address, **QUIET}
        self.client = Consumer({**config, "group.id": "bench"})
        self.admin = AdminClient(config)

    @property
    def folder(self) -> Path:
        return self.server.folder

    @property
    def versions(self) -> Mapping[str, str]:
        return {"Kafka": next(JARS.glob("kafka_2.13-*.jar")).stem.rpartition("-")[2]}

    def url(self, queue: str) -> str:  # noqa: ARG002 - one broker holds them all
        return self.server.url

    @contextlib.contextmanager
    def queue(self) -> Iterator[str]:
        """A topic and its dead letters; whatever a consumer has put beside them goes as well."""
        try:
            yield f"bench.q.{secrets.token_hex(4)}"
        finally:
            self.server.topics.clear()

    def fill(self, queue: str, load: Load, count: int) -> None:
        self.server.topics.make(queue, PARTITIONS)
        self.server.topics.make(f"{queue}.dlq", PARTITIONS, retention_ms=-1)
        people = itertools.cycle([f"person-{number}".encode() for number in range(KEYS)])
        bodies = itertools.cycle(load.bodies)
        large = {"linger.ms": 20, "batch.size": 1_000_000, "batch.num.messages": 10_000}
        with self.server.topics.producer(**large) as producer:
            for key, body in itertools.islice(zip(people, bodies, strict=False), count):
                while True:
                    try:
                        producer.produce(queue, body, key)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.flush(TIMEOUT)
        if (found := self._end(queue)) != count:
            raise RuntimeError(f"{found} of {count} records are in the topic")

    @contextlib.contextmanager
    def watch(self, queue: str, count: int, marks: tuple[int, ...]) -> Iterator[GroupWatch]:
        group = f"chronicle.{queue}"
        with self.server.topics.consumer(group) as client:
            yield GroupWatch(client, self.admin, queue, group, count, [*marks])

    def dropped(self, queue: str) -> int:
        return self._end(f"{queue}.dlq")

    def _end(self, topic: str) -> int:
        """How many records there are in a topic from which none was deleted."""
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(self.client.get_watermark_offsets(place, timeout=TIMEOUT)[1] for place in places)


@dataclass(slots=True)
class GroupWatch:
    """A watch on a group: whether it has all partitions, then the offsets it has committed."""

    client: Consumer  # of that group, without being a member
    admin: AdminClient
    topic: str
    group: str
    count: int
    marks: list[int]
    seen: list[Moment] = field(default_factory=list)

    def moments(self) -> Sequence[Moment]:
        if not self.seen and self._assigned() == PARTITIONS:
            self.seen.append(Moment(None, time.time()))
        if self.seen:
            left, now = self.count - self._committed(), time.time()
            while self.marks and left <= self.marks[0]:
                self.seen.append(Moment(self.marks.pop(0), now))
        return self.seen

    def _assigned(self) -> int:
        try:
            group = self.admin.describe_consumer_groups([self.group])[self.group].result(TIMEOUT)
        except KafkaException as problem:
            if problem.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise
        return sum(len(one.assignment.topic_partitions) for one in group.members)

    def _committed(self) -> int:
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        return sum(max(0, place.offset) for place in self.client.committed(places, timeout=TIMEOUT))
