"""The checker: what was sent against what was handled, dead-lettered or is still there.

    lost        sent, and now nowhere
    unexpected  handled or kept, and never sent
    repeats     starts beyond the first of each message

Rule 1: a message counts as sent when the broker has confirmed it, as handled when its syncer came to its
        end and answered True. Whoever acknowledges earlier is found out by a kill in between.
Rule 2: `report` takes everything off the queue, so it is the last thing a test asks for.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from chronicle.errors import BrokerRefused
from chronicle.transports.kafka import metadata
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support import journal
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.queues import Queues
from support.streams import Streams
from support.topics import Topics
from support.waiting import wait_for

SYNCER: Final = journal.__file__


class Place(Protocol):
    """Where a queue is."""

    @property
    def url(self) -> str: ...

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        """Put messages there; confirmed when this returns."""

    def take(self, queue: str) -> list[bytes]:
        """Take away everything that nobody holds."""


@dataclass(frozen=True, slots=True)
class AtRabbit:
    """A queue of a RabbitMQ broker; its dead letters are in the queue of that name."""

    queues: Queues

    @property
    def url(self) -> str:
        return self.queues.url

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.queues.publish(queue, *bodies)

    def take(self, queue: str) -> list[bytes]:
        return [fetched.body for fetched in self.queues.get_all(queue)]


@dataclass(frozen=True, slots=True)
class AtRedis:
    """A stream read by a group; its dead letters are in the stream of that name.

    An acknowledged entry stays in the stream, and one that was handed out belongs to its consumer even when
    that is dead. So what nobody settled is what is pending, whoever has it, and what was never handed out;
    ask when no consumer is left.
    """

    streams: Streams
    url: str

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        self.streams.publish(queue, *bodies)

    def take(self, queue: str) -> list[bytes]:
        return [entry.body for entry in self.streams.take(queue)]


@dataclass(frozen=True, slots=True)
class AtKafka:
    """A topic read by its usual group; its dead letters are in the topic of that name.

    A record has the key, and lies in the partition, that its message names. Nothing leaves a topic, so what
    nobody settled is what the group has not committed, neither by its offset nor by its metadata; ask when
    no consumer is left.
    """

    topics: Topics
    url: str
    lies: dict[int, tuple[int, int]] = field(default_factory=dict)  # the partition and offset of each message

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        messages = [json.loads(body) for body in bodies]
        keys = [str(message["key"]).encode() if "key" in message else None for message in messages]
        partition = messages[0].get("partition") if messages else None
        places = self.topics.publish(queue, *bodies, keys=keys, partition=partition)
        self.lies.update(zip((message["id"] for message in messages), places, strict=True))

    def take(self, queue: str) -> list[bytes]:
        done = self.topics.committed(f"chronicle.{queue}", queue)
        return [
            record.value or b""
            for record in self.topics.records(queue)
            if not is_settled(record.offset, *done.get(record.partition, (0, "")))
        ]


def is_settled(offset: int, committed: int, beyond: str) -> bool:
    """Whether this commit says that the record at this offset is done."""
    runs = metadata.read(committed, beyond)
    return offset < committed or any(begin <= offset < end for begin, end in runs)


@dataclass(frozen=True, slots=True)
class InFile:
    """A queue in a file."""

    path: Path

    @property
    def url(self) -> str:
        return f"local:{self.path}"

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        with LocalPublisher(Connector(self.url, queue)) as publisher:
            publisher.publish([Outgoing(body) for body in bodies])

    def take(self, queue: str) -> list[bytes]:
        # What is given back by closing is still in the file: enough for counting.
        transport = LocalTransport(Connector(self.url, queue))
        try:
            transport.open(lambda: False)
            return [delivery.body for delivery in transport.receive(1_000_000, 0)]
        except BrokerRefused:
            return []  # a queue of dead letters comes with the first of them
        finally:
            transport.close()


@dataclass(frozen=True, slots=True)
class Report:
    """What the checker found."""

    sent: frozenset[int]
    handled: frozenset[int]
    dead: frozenset[int]
    queued: tuple[int, ...]
    repeats: int

    @property
    def lost(self) -> list[int]:
        return sorted(self.sent - self.handled - self.dead - set(self.queued))

    @property
    def unexpected(self) -> list[int]:
        return sorted((self.handled | self.dead | set(self.queued)) - self.sent)


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the journal: somebody has begun or ended a message."""

    number: int
    pid: int
    time: float  # monotonic


@dataclass(slots=True)
class Campaign:
    """Numbered messages on one queue, and the journal of whoever handles them."""

    place: Place
    queue: str
    folder: Path
    dead: str = ""  # the queue of dead letters
    sent: set[int] = field(default_factory=set)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.queue}.journal"

    def consume(
        self,
        start: StartChronicle,
        *options: str,
        syncer: str = "sync",
        url: str = "",
        stderr: int | None = None,
    ) -> ChronicleProcess:
        """Start the real command on this queue, with the journal's syncer of that name."""
        # The URL goes by the environment: a password on the command line is warned about.
        return start(
            "consume", "--queue", self.queue, "--schema", "json", "--syncer", f"{SYNCER}:{syncer}", *options,
            env={journal.JOURNAL: str(self.path), "CHRONICLE_URL": url or self.place.url},
            stderr=stderr,
        )  # fmt: skip

    def send(self, count: int = 1, **asked: Any) -> list[int]:
        """Publish so many messages with the next numbers, each asking this of the syncer.

        What is asked may be a function of the number.
        """
        numbers = list(range(len(self.sent), len(self.sent) + count))
        bodies = [
            {"id": n, **{name: what(n) if callable(what) else what for name, what in asked.items()}}
            for n in numbers
        ]
        self.place.publish(self.queue, [json.dumps(body).encode() for body in bodies])
        self.sent.update(numbers)
        return numbers

    def survived(self, bodies: Sequence[bytes]) -> None:
        """A broker may lose what it had confirmed (S9). These are what it still has, settled or not: what is
        not among them and was never handled counts as never sent."""
        self.sent &= {_number(body) for body in bodies} | set(self.ended())

    def started(self) -> Counter[int]:
        """How often each message was begun."""
        return Counter(step.number for step in self.steps("start"))

    def ended(self) -> Counter[int]:
        """How often each message came to its end."""
        return Counter(step.number for step in self.steps("end"))

    def steps(self, what: str) -> list[Step]:
        """All that was begun ("start") or ended ("end"), in the order of the journal."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [Step(int(line[1]), int(line[2]), float(line[3])) for line in lines if line[0] == what]

    def wait_started(self, count: int, timeout: float = 60.0) -> None:
        wait_for(lambda: len(self.started()) >= count, timeout, f"{count} messages begun on {self.queue}")

    def wait_ended(self, count: int, timeout: float = 60.0) -> None:
        wait_for(lambda: len(self.ended()) >= count, timeout, f"{count} messages handled on {self.queue}")

    def wait_all_ended(self, timeout: float = 60.0) -> None:
        def missing() -> str:
            left = sorted(self.sent - set(self.ended()))
            return f"{len(left)} of {len(self.sent)}: {left[:20]}" if left else ""

        deadline = time.monotonic() + timeout
        while left := missing():
            assert time.monotonic() < deadline, f"{self.queue}: not handled after {timeout:g} s: {left}"
            time.sleep(0.05)

    def report(self, *, patience: float = 10.0) -> Report:
        """Empty the queue and compare; what a dead connection held may take a moment to come back."""
        deadline = time.monotonic() + patience
        queued: list[int] = []
        dead: list[int] = []
        while True:
            queued += [_number(body) for body in self.place.take(self.queue)]
            dead += [_number(body) for body in self.place.take(self.dead)] if self.dead else []
            found = Report(
                frozenset(self.sent),
                frozenset(self.ended()),
                frozenset(dead),
                tuple(queued),
                sum(self.started().values()) - len(self.started()),
            )
            if not found.lost or time.monotonic() >= deadline:
                return found
            time.sleep(0.1)


NewCampaign: TypeAlias = Callable[..., Campaign]


def wait_for_lines(process: ChronicleProcess, event: str, count: int, timeout: float = 60.0) -> None:
    """Until the process has said this so often."""
    wait_for(lambda: len(process.lines(event)) >= count, timeout, f"{count} times {event} of {process}")


def _number(body: bytes) -> int:
    return int(json.loads(body)["id"])
