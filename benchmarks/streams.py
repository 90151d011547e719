"""Streams of a Redis of our own: how they are made, filled, and watched from the outside.

The watch asks the group how many entries it has handed out and how many of them are still pending. Both are
counters in Redis: the question costs the same however long the stream or the pending list is.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.filling import Load
from benchmarks.watching import Moment
from support.redis_server import RedisServer

GROUP: Final = "chronicle"
AT_ONCE: Final = 10_000
TIMEOUT: Final = 60.0
# Made inside Redis: a body is sent once, and filling takes seconds instead of minutes.
FILL: Final = """
    for number = 0, tonumber(ARGV[1]) - 1 do
        redis.call('XADD', KEYS[1], '*', ARGV[2], ARGV[3 + number % (#ARGV - 2)])
    end"""
HOLD: Final = """
    return #redis.call('XREADGROUP', 'GROUP', ARGV[1], 'somebody-else', 'COUNT', ARGV[2],
                       'STREAMS', KEYS[1], '>')[1][2]"""


@dataclass(slots=True)
class AtRedis:
    """Streams with one group each. Nothing is written to disk, as with most who use Redis for a queue."""

    server: RedisServer
    client: Any = field(init=False)  # kept: the watch asks many times a second

    def __post_init__(self) -> None:
        self.client = self.server.client(timeout=TIMEOUT)

    @property
    def folder(self) -> Path:
        return self.server.folder

    @property
    def versions(self) -> Mapping[str, str]:
        return {"Redis": str(self.client.info("server")["redis_version"])}

    def url(self, queue: str) -> str:  # noqa: ARG002 - one broker holds them all
        return self.server.url

    @contextlib.contextmanager
    def queue(self) -> Iterator[str]:
        """A stream; whatever a consumer has put beside it goes with it."""
        try:
            yield f"bench.q.{secrets.token_hex(4)}"
        finally:
            self.client.flushall(asynchronous=False)

    def fill(self, queue: str, load: Load, count: int) -> None:
        self.client.xgroup_create(queue, GROUP, "0", mkstream=True)
        for some in _pieces(load.held + count):
            self.client.eval(FILL, 1, queue, some, load.body_field, *load.bodies)
        for some in _pieces(load.held):
            self.client.eval(HOLD, 1, queue, GROUP, some)

    @contextlib.contextmanager
    def watch(self, queue: str, count: int, marks: tuple[int, ...]) -> Iterator[StreamWatch]:
        yield StreamWatch(self.client, queue, count, [*marks], *counted(self.client, queue))

    def dropped(self, queue: str) -> int:
        """Dead letters, and what waits for another attempt: both are acknowledged in the stream."""
        return int(self.client.xlen(f"{queue}.dlq")) + int(self.client.zcard(f"{queue}.retry"))


@dataclass(slots=True)
class StreamWatch:
    """A watch on the group's counters; those of before are what somebody else has had and holds."""

    client: Any
    queue: str
    count: int
    marks: list[int]
    read_before: int
    pending_before: int
    seen: list[Moment] = field(default_factory=list)

    def moments(self) -> Sequence[Moment]:
        read, pending = counted(self.client, self.queue)
        now = time.time()
        read -= self.read_before
        left = self.count - (read - (pending - self.pending_before))
        if not self.seen and read:
            self.seen.append(Moment(None, now))
        while self.marks and left <= self.marks[0]:
            self.seen.append(Moment(self.marks.pop(0), now))
        return self.seen


def counted(client: Any, queue: str) -> tuple[int, int]:
    """How many entries the group has handed out for the first time, and how many are pending."""
    (group,) = client.xinfo_groups(queue)
    return int(group["entries-read"] or 0), int(group["pending"])


def _pieces(count: int) -> Iterator[int]:
    """So many, a few thousand at a time: a script keeps everybody else waiting while it runs."""
    for begun in range(0, count, AT_ONCE):
        yield min(AT_ONCE, count - begun)
