"""Where the queues of a run are: how they are made, filled, watched from the outside and checked.

A new broker needs a class here or beside it (streams.py, topics.py), a word in `Where`, a start in `started`,
and the contenders of `backlog`, or a case like `redis-flat`, in cases.py.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from benchmarks.filling import Load, fill
from benchmarks.peers import Where
from benchmarks.streams import AtRedis
from benchmarks.topics import AtKafka
from benchmarks.watching import Moment, watch
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.kafka_server import KafkaServer
from support.kafka_server import why_not as no_kafka
from support.rabbit import RabbitNode
from support.redis_server import RedisServer

DEAD: Final = "bench.dead"
AT_ONCE: Final = 10_000
FIRST: Final = """
    SELECT m.id, m.owner IS NOT NULL FROM messages AS m
    WHERE m.queue = (SELECT id FROM queues WHERE name = ?) ORDER BY m.id LIMIT 1"""


class Watch(Protocol):
    """Reads when the queue reached its marks, so far."""

    def moments(self) -> Sequence[Moment]: ...


class Place(Protocol):
    """One kind of broker, ready to use."""

    @property
    def folder(self) -> Path:
        """For what a consumer prints."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of the broker, by its name."""

    def url(self, queue: str) -> str: ...

    def queue(self) -> AbstractContextManager[str]:
        """The name of a queue for one run; it is gone afterwards."""

    def fill(self, queue: str, load: Load, count: int) -> None:
        """Make the queue and put so many messages there; they are there when this returns."""

    def watch(self, queue: str, count: int, marks: tuple[int, ...]) -> AbstractContextManager[Watch]:
        """Watch a queue that holds `count` messages; marks are counts of messages left, falling."""

    def dropped(self, queue: str) -> int:
        """How many messages a consumer put aside instead of handling them; they are gone afterwards."""


def why_not(where: Where) -> str:
    """Why this kind of broker cannot be started here; empty if it can, as far as is known before."""
    return no_kafka() if where is Where.KAFKA else ""


@contextlib.contextmanager
def started(needed: Collection[Where], folder: Path) -> Iterator[Mapping[Where, Place]]:
    """The kinds of broker that are needed, all our own and new; they end with this."""
    with contextlib.ExitStack() as ours:
        places: dict[Where, Place] = {}
        for where in needed:
            match where:
                case Where.RABBITMQ:
                    node = RabbitNode(settings={"vm_memory_high_watermark.absolute": "2GB"})
                    ours.callback(node.close)
                    places[where] = AtRabbit(node.start())
                case Where.REDIS:
                    places[where] = AtRedis(ours.enter_context(RedisServer()).start())
                case Where.KAFKA:
                    places[where] = AtKafka(ours.enter_context(KafkaServer()).start())
                case Where.EMBEDDED:
                    places[where] = InFile(folder)
        yield places


@dataclass(frozen=True, slots=True)
class AtRabbit:
    """Queues of a RabbitMQ of our own; it keeps what any consumer drops, without an argument to trip over."""

    node: RabbitNode

    def __post_init__(self) -> None:
        self.node.queues.declare(DEAD)
        kept = {"dead-letter-exchange": "", "dead-letter-routing-key": DEAD}
        self.node.ctl("set_policy", "bench", r"^bench\.q\.", json.dumps(kept))

    @property
    def folder(self) -> Path:
        return self.node.folder

    @property
    def versions(self) -> Mapping[str, str]:
        return {"RabbitMQ": self.node.ctl("version").strip()}

    def url(self, queue: str) -> str:  # noqa: ARG002 - one broker holds them all
        return self.node.url

    @contextlib.contextmanager
    def queue(self) -> Iterator[str]:
        """A queue, and those a framework puts beside it."""
        queue = self.node.queues.name("x").replace("chronicle.test.x", "bench.q")
        try:
            yield queue
        finally:
            for name in (queue, f"{queue}.DQ", f"{queue}.XQ"):
                self.node.queues.delete(name)

    def fill(self, queue: str, load: Load, count: int) -> None:
        self.node.queues.declare(queue, load.arguments)
        fill(self.node.url, queue, load, count)

    @contextlib.contextmanager
    def watch(self, queue: str, count: int, marks: tuple[int, ...]) -> Iterator[Watch]:
        yield watch(self.node, queue, count, marks)

    def dropped(self, queue: str) -> int:
        for name in (DEAD, f"{queue}.DQ", f"{queue}.XQ"):
            if self.node.queues.exists(name) and (found := self.node.queues.depth(name)):
                with self.node.queues.channel() as channel:
                    channel.queue_purge(name)
                return found
        return 0


@dataclass(frozen=True, slots=True)
class InFile:
    """Queues of the embedded kind, each in a file of its own."""

    folder: Path

    @property
    def versions(self) -> Mapping[str, str]:
        return {"SQLite": sqlite3.sqlite_version}

    def url(self, queue: str) -> str:
        return f"local:{self._file(queue)}"

    @contextlib.contextmanager
    def queue(self) -> Iterator[str]:
        queue = f"bench.q.{secrets.token_hex(4)}"
        try:
            yield queue
        finally:
            for end in ("", "-wal", "-shm"):
                Path(f"{self._file(queue)}{end}").unlink(missing_ok=True)

    def fill(self, queue: str, load: Load, count: int) -> None:
        messages = itertools.islice(itertools.cycle([Outgoing(body) for body in load.bodies]), count)
        with LocalPublisher(Connector(self.url(queue), queue)) as publisher:
            while batch := list(itertools.islice(messages, AT_ONCE)):
                publisher.publish(batch)

    @contextlib.contextmanager
    def watch(self, queue: str, count: int, marks: tuple[int, ...]) -> Iterator[Watch]:
        with contextlib.closing(self._look(queue)) as look:
            yield FileWatch(look, queue, count, [*marks])

    def dropped(self, queue: str) -> int:
        with contextlib.closing(self._look(queue)) as look:
            aside = "SELECT count(*) FROM messages WHERE queue <> (SELECT id FROM queues WHERE name = ?)"
            return int(look.execute(aside, (queue,)).fetchone()[0])

    def _file(self, queue: str) -> Path:
        return self.folder / f"{queue}.db"

    def _look(self, queue: str) -> sqlite3.Connection:
        return sqlite3.connect(self._file(queue), isolation_level=None)


@dataclass(slots=True)
class FileWatch:
    """A watch that looks at the oldest message: they are handed out and removed in their order."""

    look: sqlite3.Connection
    queue: str
    count: int
    marks: list[int]
    seen: list[Moment] = field(default_factory=list)

    def moments(self) -> Sequence[Moment]:
        oldest, held = self.look.execute(FIRST, (self.queue,)).fetchone() or (self.count + 1, True)
        left, now = self.count + 1 - oldest, time.time()
        if not self.seen and (held or left < self.count):
            self.seen.append(Moment(None, now))
        while self.marks and left <= self.marks[0]:
            self.seen.append(Moment(self.marks.pop(0), now))
        return self.seen
