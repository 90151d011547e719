"""Dead letters on a queue of any kind, for tests of what is done to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Synced
from chronicle.core.policy import ACKED
from chronicle.core.queues import QueueType
from chronicle.core.settlement import Settlement
from chronicle.core.topology import Enabled, QueueOptions
from chronicle.transports.catalog import declare_topology, open_publisher, open_reader, open_transport
from chronicle.transports.seam import Connector, Outgoing, Reader, Reading
from support.cli import Said, run
from support.queues import Queues
from support.topics import Topics

CANARY = "Wandacanary"


@dataclass(frozen=True, slots=True)
class Found:
    """A message taken off a queue."""

    body: bytes
    headers: Mapping[str, Any]
    redelivered: bool

    @property
    def id(self) -> int:
        return int(json.loads(self.body)["actionId"])


@dataclass(frozen=True, slots=True)
class DeadHouse:
    """A queue and its dead letters at some broker."""

    url: str
    queue: str
    folder: Path
    kind: str
    queues: Queues | None = None

    @property
    def dlq(self) -> str:
        return f"{self.queue}.dlq"

    def put(self, queue: str, messages: Iterable[Outgoing]) -> None:
        waiting = list(messages)
        with open_publisher(replace(self._connector, queue=queue)) as publisher:
            for at in range(0, len(waiting) or 1, 500):
                publisher.publish(waiting[at : at + 500])

    def make(self, queue: str) -> None:
        """Another queue, empty."""
        if self.queues is not None:
            self.queues.declare(queue)
        else:
            self.put(queue, [])

    def die(self, *ids: int, **headers: Any) -> None:
        """Dead letters of these actions; a header's dashes are written as underscores."""
        told = {"x-chronicle-queue": self.queue, "x-chronicle-reason": "the syncer returned False"}
        written = told | {name.replace("_", "-"): value for name, value in headers.items()}
        self.put(self.dlq, [Outgoing(action(number), written) for number in ids])

    def take(self, queue: str) -> list[Found]:
        """Everything that is in a queue, out of it."""
        transport = open_transport(replace(self._connector, queue=queue, prefetch=500))
        waiting = transport.open(lambda: False) or 0
        found: list[Found] = []
        try:
            while len(found) < waiting:
                batch = transport.receive(500, 5.0)
                found += [Found(one.body, one.headers, one.redelivered) for one in batch]
                transport.settle([Settlement(one, Synced(), ACKED) for one in batch])
        finally:
            transport.close()
        return found

    def depth(self, queue: str) -> int:
        transport = open_transport(replace(self._connector, queue=queue))
        if self.queues is not None:
            return self.queues.depth(queue)
        try:
            return transport.open(lambda: False) or 0
        finally:
            transport.close()

    def ids(self, queue: str) -> list[int]:
        return [one.id for one in self.take(queue)]

    def dlq_command(self, *args: str, **environ: str) -> Said:
        """`chronicle dlq …` over this queue."""
        return run("dlq", *args, *self.where, cwd=self.folder, env=self.env | environ)

    @property
    def where(self) -> tuple[str, ...]:
        return ("--queue", self.queue)

    @property
    def env(self) -> dict[str, str]:
        return {"CHRONICLE_URL": self.url}

    @property
    def _connector(self) -> Connector:
        return Connector(self.url, self.queue)


@dataclass(frozen=True, slots=True)
class KafkaHouse(DeadHouse):
    """A topic and its dead letters.

    What is in a topic is what its group has not settled; whoever takes it settles it.
    """

    topics: Topics = field(kw_only=True)

    def make(self, queue: str) -> None:
        self.topics.make(queue, 1)

    def take(self, queue: str) -> list[Found]:
        with self._reader(queue) as reader:
            found: list[Delivery] = []
            while (batch := reader.read(500, 5.0)) is not None:
                found += batch
            reader.remove(found)
        return [Found(one.body, one.headers, one.redelivered) for one in found]

    def depth(self, queue: str) -> int:
        with self._reader(queue) as reader:
            return reader.present

    @contextmanager
    def _reader(self, queue: str) -> Iterator[Reader]:
        reader = open_reader(replace(self._connector, queue=queue), Reading())
        reader.open(lambda: False)
        try:
            yield reader
        finally:
            reader.close()


def action(number: int) -> bytes:
    """An action whose contact must not show anywhere."""
    contact = {"email": f"{CANARY}{number}@example.org", "firstName": CANARY}
    return json.dumps({"schema": "proca:action:2", "actionId": number, "contact": contact}).encode()


def at_kafka(topics: Topics, url: str, folder: Path, partitions: int = 1) -> KafkaHouse:
    """A fresh topic with one for its dead letters; those of one partition have an order."""
    topic = topics.make(topics.name("dlq"), partitions)
    topics.make(f"{topic}.dlq", partitions)
    return KafkaHouse(url, topic, folder, "kafka", topics=topics)


def at_rabbit(queues: Queues, folder: Path, kind: str) -> DeadHouse:
    """A fresh queue of this kind, `classic` or `quorum`, with a place for its dead letters."""
    queue, wanted_type = queues.name("dlq"), QueueType(kind)
    wanted = QueueOptions(queue_type=wanted_type, dead_letter=Enabled(queue_type=wanted_type), retry=None)
    declare_topology(Connector(queues.url, queue, declare=wanted))
    queues.made += [queue, f"{queue}.dlq"]
    queues.exchanges.append(f"{queue}.dlx")
    return DeadHouse(queues.url, queue, folder, kind, queues)
