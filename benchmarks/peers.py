"""Who runs side by side: chronicle, its reference, libraries, frameworks, and the limit.

Rule 1: each does the same work: a durable queue of proca actions, parsed, its schema checked, handled, and
        acknowledged one by one, with the same concurrency and a prefetch of twice as much. At Redis it is a
        stream read in a group, and the window is what one read may bring. At Kafka it is a topic read in a
        group, where a commit acknowledges all that is before it: who leaves commits to the client has them
        made as often as chronicle makes its own.
Rule 2: nobody counts, times or stops itself; that is done from the outside, alike for all.
Rule 3: a framework with a format of its own gets the same action inside its own envelope.
Rule 4: each runs as its own documentation starts it. So chronicle's async syncers run on uvloop, which it
        brings along, and those of the others on asyncio's own loop.
"""

from __future__ import annotations

import json
import struct
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks import HERE
from benchmarks.filling import Load

SCRIPTS: Final = HERE / "consumers"
HELD: Final = 100_000
FASTSTREAM_FORMAT: Final = b"\x89BIN\r\n\x1a\n"


class Kind(StrEnum):
    """What a consumer is to chronicle."""

    OURS = "ours"
    REFERENCE = "reference"
    LIBRARY = "library"
    FRAMEWORK = "framework"
    LIMIT = "limit"


class Installer(StrEnum):
    """Where a consumer comes from."""

    HERE = "this environment"
    PIP = "pip"
    NPM = "npm"
    CC = "cc"


class Where(StrEnum):
    """What kind of broker a consumer is run on (places.py)."""

    RABBITMQ = "RabbitMQ"
    EMBEDDED = "embedded"
    REDIS = "Redis"
    KAFKA = "Kafka"


CLIENTS: Final = {
    Where.RABBITMQ: ("pika",),
    Where.REDIS: ("redis", "hiredis"),
    Where.KAFKA: ("confluent-kafka",),
}


class Handler(StrEnum):
    """What is done with a message; the names of chronicle's syncers."""

    ASYNC_NOOP = "async_noop"
    ASYNC_WAIT = "async_wait"
    SYNC_NOOP = "sync_noop"
    SYNC_WAIT = "sync_wait"
    ASYNC_HTTP = "async_http"
    SYNC_HTTP = "sync_http"

    @property
    def wait(self) -> float:
        return 0.005 if self in (Handler.ASYNC_WAIT, Handler.SYNC_WAIT) else 0.0

    @property
    def calls(self) -> bool:
        """Whether it makes an HTTP request for every message."""
        return self in (Handler.ASYNC_HTTP, Handler.SYNC_HTTP)


@dataclass(frozen=True, slots=True)
class Task:
    """What one consumer is to do in one run; `http` is the server to call, `clients` where the means are."""

    url: str
    queue: str
    concurrency: int
    handler: Handler
    keys: Path | None = None
    http: str = ""
    clients: Path | None = None

    def environment(self, env: Path) -> dict[str, str]:
        """What a peer's script reads."""
        return {
            "BENCH_URL": self.url,
            "BENCH_QUEUE": self.queue,
            "BENCH_CONCURRENCY": str(self.concurrency),
            "BENCH_WAIT": str(self.handler.wait),
            "BENCH_KEYS": str(self.keys or ""),
            "BENCH_HTTP": self.http,
            "BENCH_CLIENTS": str(self.clients or ""),
            "BENCH_MODULES": str(env),
            "CHRONICLE_URL": self.url,
        }


def plain(message: bytes, _queue: str) -> Load:
    """The action as proca sends it, without a content type: the reference fails on one."""
    return Load((message,))


@dataclass(frozen=True, slots=True)
class Peer:
    """A consumer: where it comes from, how it is started, what its messages look like.

    `share` is the part of a case's messages it gets: a slow one need not be watched for minutes to know its
    rate. With `terminal` its output goes to a terminal, otherwise to a file. With `waiting` its queue holds
    so many messages, however few of them are handled.
    """

    name: str
    kind: Kind
    installer: Installer
    packages: tuple[str, ...]
    command: Callable[[Path, Task], list[str]]
    load: Callable[[bytes, str], Load] = plain
    share: float = 1.0
    terminal: bool = False
    where: Where = Where.RABBITMQ
    waiting: int = 0


def dramatiq_load(message: bytes, queue: str) -> Load:
    """The action as the argument of an actor."""
    body = {
        "queue_name": queue,
        "actor_name": "handle",
        "args": [json.loads(message)],
        "kwargs": {},
        "options": {},
        "message_timestamp": 1_772_446_272_000,
    }
    bodies = tuple(json.dumps({**body, "message_id": str(uuid.uuid4())}).encode() for _ in range(100))
    # dramatiq declares the queue itself and insists on these.
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.XQ"}
    return Load(bodies, arguments=dead)


def celery_load(message: bytes, _queue: str) -> Load:
    """The action as the argument of a task."""
    task = str(uuid.uuid4())
    embed: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    headers = {"lang": "py", "task": "handle", "id": task, "root_id": task, "retries": 0}
    return Load(
        (json.dumps([[json.loads(message)], {}, embed]).encode(),),
        properties={
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "correlation_id": task,
            "headers": headers,
        },
    )


def faststream_load(message: bytes, _queue: str) -> Load:
    """The action in FastStream's format for Redis: a mark, a version, two offsets, headers, the body."""
    headers = {"correlation_id": str(uuid.uuid4()), "content-type": "application/json"}
    words = [word.encode() for pair in headers.items() for word in pair]
    written = struct.pack(">H", len(headers)) + b"".join(
        struct.pack(">H", len(word)) + word for word in words
    )
    start = len(FASTSTREAM_FORMAT) + struct.calcsize(">HII")
    head = FASTSTREAM_FORMAT + struct.pack(">HII", 1, start, start + len(written))
    return Load((head + written + message,), body_field="__data__")


def held_load(message: bytes, _queue: str) -> Load:
    """The plain action, behind a hundred thousand that another consumer of the group has not settled."""
    return Load((message,), held=HELD)


def chronicle(name: str, *arguments: str, terminal: bool = False) -> Peer:
    """The real command with the whole pipeline."""

    def command(_env: Path, task: Task) -> list[str]:
        words = [
            str(Path(sys.executable).parent / "chronicle"),
            "consume",
            *("--queue", task.queue),
            *("--syncer", f"{SCRIPTS / 'chronicle_syncer.py'}:{task.handler}"),
            *("--concurrency", str(task.concurrency)),
            *arguments,
        ]
        return words if task.keys is None else [*words, "--keys", str(task.keys), "--require-decryption"]

    peer = Peer(name, Kind.OURS, Installer.HERE, (), command, terminal=terminal)
    return at(Where.RABBITMQ, peer)


def subscribe(loop: str) -> Peer:
    """chronicle from a program, in a loop of this kind."""

    def command(_env: Path, _task: Task) -> list[str]:
        return [sys.executable, str(SCRIPTS / "chronicle_subscribe.py"), loop]

    peer = Peer(f"chronicle.subscribe, {loop}", Kind.OURS, Installer.HERE, (), command)
    return at(Where.RABBITMQ, peer)


def at(where: Where, peer: Peer) -> Peer:
    """The same chronicle with this broker, and the packages that it needs there."""
    packages = ("chronicle-syncer", *CLIENTS.get(where, ()), "orjson", "pynacl")
    return replace(peer, where=where, packages=packages)


def backlog(where: Where, waiting: int, *arguments: str) -> Peer:
    """chronicle on a queue of this length, named by what is different."""
    name = ", ".join([where, *(word.removeprefix("--") for word in arguments), f"{waiting} waiting"])
    return replace(at(where, chronicle(name, "--log-level", "warning", *arguments)), waiting=waiting)


def behind_held(waiting: int) -> Peer:
    """chronicle on a stream of this length whose group has a long pending list, all of it somebody else's."""
    return replace(
        backlog(Where.REDIS, waiting), name=f"{Where.REDIS}, {waiting} waiting, {HELD} held", load=held_load
    )


def _script(name: str, *arguments: str) -> Callable[[Path, Task], list[str]]:
    return lambda env, _task: [str(env / "bin" / "python"), str(SCRIPTS / name), *arguments]


def _node(_env: Path, _task: Task) -> list[str]:
    return ["node", str(SCRIPTS / "proca_queue.mjs")]


def _dramatiq(env: Path, task: Task) -> list[str]:
    return [
        *(str(env / "bin" / "dramatiq"), "dramatiq_consumer", "--path", str(SCRIPTS)),
        *("--processes", "1", "--threads", str(task.concurrency)),
    ]


def _celery(env: Path, task: Task) -> list[str]:
    return [
        *(str(env / "bin" / "celery"), "--app", "celery_consumer", "--workdir", str(SCRIPTS), "worker"),
        *("--pool", "threads", "--concurrency", str(task.concurrency), "--loglevel", "warning"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def _limit(env: Path, _task: Task) -> list[str]:
    return [str(env / "limit")]


CHRONICLE: Final = chronicle("chronicle", "--log-level", "warning")
SILENT: Final = chronicle("chronicle, errors only", "--log-level", "error")
JSON_LINES: Final = chronicle("chronicle, a JSON line each", "--log-level", "info", "--log-format", "json")
LIVE: Final = chronicle("chronicle, live view", "--live", terminal=True)
SUBSCRIBE, SUBSCRIBE_ASYNC = subscribe("plain"), subscribe("async")
PROCA: Final = Peer("@proca/queue", Kind.REFERENCE, Installer.NPM, ("@proca/queue",), _node)
AIO_PIKA: Final = Peer(
    "aio-pika", Kind.LIBRARY, Installer.PIP, ("aio-pika",), _script("aio_pika_consumer.py"), share=0.5
)
AIO_PIKA_ITERATOR: Final = Peer(
    "aio-pika, its iterator", Kind.LIBRARY, Installer.PIP, ("aio-pika",), _script("aio_pika_iterator.py"),
    share=0.25,
)  # fmt: skip
PIKA_THREADS: Final = Peer(
    "pika + threads", Kind.LIBRARY, Installer.PIP, ("pika",), _script("pika_threads.py"), share=0.5
)
FASTSTREAM: Final = Peer(
    "FastStream", Kind.FRAMEWORK, Installer.PIP, ("faststream[rabbit]",), _script("faststream_consumer.py"),
    share=0.25,
)  # fmt: skip
DRAMATIQ: Final = Peer(
    "dramatiq", Kind.FRAMEWORK, Installer.PIP, ("dramatiq[rabbitmq]",), _dramatiq, dramatiq_load, share=0.25
)
CELERY: Final = Peer(
    "Celery", Kind.FRAMEWORK, Installer.PIP, ("celery",), _celery, celery_load, share=0.25
)  # fmt: skip
LIMIT: Final = Peer("C, the limit", Kind.LIMIT, Installer.CC, ("librabbitmq-dev",), _limit)
CHRONICLE_REDIS: Final = at(Where.REDIS, CHRONICLE)
# With hiredis, as the others: it does not ask for it, and could be thought slow for want of it.
FASTSTREAM_REDIS: Final = Peer(
    "FastStream (Redis)", Kind.FRAMEWORK, Installer.PIP, ("faststream[redis]", "hiredis"),
    _script("faststream_redis_consumer.py"), faststream_load, share=0.1, where=Where.REDIS,
)  # fmt: skip
BARE_REDIS: Final = Peer(
    "redis-py, a bare loop", Kind.LIBRARY, Installer.PIP, ("redis", "hiredis", "orjson"),
    _script("redis_loop.py"), where=Where.REDIS,
)  # fmt: skip
# By default records of one key are handled one after the other; without an order nobody waits.
CHRONICLE_KAFKA: Final = at(Where.KAFKA, CHRONICLE)
UNORDERED: Final = at(
    Where.KAFKA, chronicle("chronicle, --order none", "--log-level", "warning", "--order", "none")
)
# The two ways in which it can be set up; with orjson, as the others, which it uses where it is there.
FASTSTREAM_KAFKA, FASTSTREAM_KAFKA_FIRST = (
    Peer(
        name, Kind.FRAMEWORK, Installer.PIP, ("faststream[confluent]", "confluent-kafka", "orjson"),
        _script("faststream_kafka_consumer.py", acks), share=0.025, where=Where.KAFKA,
    )
    for name, acks in (
        ("FastStream (Kafka), one by one", "after"), ("FastStream (Kafka), acks first", "first"),
    )
)  # fmt: skip
BARE_KAFKA: Final = Peer(
    "confluent-kafka, a bare loop", Kind.LIBRARY, Installer.PIP, ("confluent-kafka", "orjson"),
    _script("kafka_loop.py"), where=Where.KAFKA,
)  # fmt: skip
