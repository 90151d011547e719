"""What a test does to streams, with plain redis-py: a short connection per call, so a restart is harmless."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from redis.exceptions import ResponseError

GROUP: Final = "chronicle"  # the group that is used unless another one is named
MANY: Final = 1_000_000

# Chronicle keeps delayed entries in a sorted set, as an id and its fields.
DELAYED: Final = """
local found = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  found[#found + 1] = cmsgpack.unpack(member)
end
return found
"""

Connect: TypeAlias = Callable[[], Any]  # a client of one server, or of a cluster


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a stream."""

    id: str
    fields: Mapping[str, bytes]

    @property
    def body(self) -> bytes:
        return self.fields["data"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that was handed out and is not acknowledged; `idle` in seconds."""

    id: str
    consumer: str
    idle: float
    count: int


@dataclass(slots=True)
class Streams:
    """Makes, fills, looks into and empties streams; remembers what it made, to clear it away."""

    connect: Connect
    tagged: bool = False  # in a cluster a stream and all that belongs to it share a hash tag
    made: list[str] = field(default_factory=list)

    def name(self, word: str = "stream") -> str:
        """A stream's name that nobody else uses."""
        name = f"chronicle.test.{word}.{secrets.token_hex(4)}"
        return f"{{{name}}}" if self.tagged else name

    def make(self, stream: str, *, group: str = GROUP, start: str = "0") -> str:
        """A stream with this group, empty unless it was there."""
        with self.client() as client:
            try:
                client.xgroup_create(stream, group, start, mkstream=True)
            except ResponseError as refused:
                if not str(refused).startswith("BUSYGROUP"):
                    raise
        self.made.append(stream)
        return stream

    def publish(self, stream: str, *bodies: bytes, fields: Mapping[str, bytes] | None = None) -> list[str]:
        """Add an entry for each body, with these fields beside it; their ids. Nothing is sent twice."""
        return [self.add(stream, {"data": body, **(fields or {})}) for body in bodies]

    def add(self, stream: str, fields: Mapping[str, bytes]) -> str:
        """Add one entry with just these fields; its id."""
        with self.client() as client:
            return _text(client.xadd(stream, dict(fields)))

    def entries(self, stream: str) -> list[Entry]:
        """All that is in the stream, settled or not."""
        with self.client() as client:
            return [_entry(found) for found in client.xrange(stream)]

    def bodies(self, stream: str) -> list[bytes]:
        return [entry.body for entry in self.entries(stream)]

    def entry(self, stream: str, number: str) -> Entry | None:
        with self.client() as client:
            found = client.xrange(stream, number, number)
        return _entry(found[0]) if found else None

    def length(self, stream: str) -> int:
        with self.client() as client:
            return int(client.xlen(stream))

    def exists(self, key: str) -> bool:
        with self.client() as client:
            return bool(client.exists(key))

    def groups(self, stream: str) -> dict[str, dict[str, Any]]:
        """What the server says about each group: pending, last-delivered-id, lag …"""
        with self.client() as client:
            return {_text(facts["name"]): facts for facts in client.xinfo_groups(stream)}

    def consumers(self, stream: str, group: str = GROUP) -> list[str]:
        """The names of all consumers that the group knows, living or dead."""
        with self.client() as client:
            return sorted(_text(facts["name"]) for facts in client.xinfo_consumers(stream, group))

    def pending(self, stream: str, group: str = GROUP) -> list[Pending]:
        """All that is handed out and not acknowledged, in the order of the stream."""
        with self.client() as client:
            found = client.xpending_range(stream, group, "-", "+", MANY)
        return [
            Pending(
                _text(one["message_id"]),
                _text(one["consumer"]),
                one["time_since_delivered"] / 1000,
                one["times_delivered"],
            )
            for one in found
        ]

    def held(self, stream: str, group: str = GROUP) -> dict[str, int]:
        """How much each consumer holds."""
        counts: dict[str, int] = {}
        for one in self.pending(stream, group):
            counts[one.consumer] = counts.get(one.consumer, 0) + 1
        return counts

    def waiting(self, stream: str, group: str = GROUP) -> list[Entry]:
        """What was never handed out."""
        last = _text(self.groups(stream)[group]["last-delivered-id"])
        with self.client() as client:
            return [_entry(found) for found in client.xrange(stream, f"({last}")]

    def delayed(self, stream: str) -> list[Entry]:
        """What waits beside the stream for its next try."""
        with self.client() as client:
            found = client.eval(DELAYED, 1, f"{stream}.retry")
        return [_entry((number, dict(zip(pairs[::2], pairs[1::2], strict=True)))) for number, pairs in found]

    def read(self, stream: str, consumer: str, count: int = 10, *, group: str = GROUP) -> list[Entry]:
        """Take new entries in the name of a consumer, which then holds them."""
        with self.client() as client:
            got = client.xreadgroup(group, consumer, {stream: ">"}, count=count)
        return [_entry(found) for found in got[0][1]] if got else []

    def ack(self, stream: str, *ids: str, group: str = GROUP) -> int:
        with self.client() as client:
            return int(client.xack(stream, group, *ids)) if ids else 0

    def take(self, stream: str, *, group: str = GROUP) -> list[Entry]:
        """Take off everything that is not settled, whoever holds it; without a group, all there is.

        An entry that was trimmed while somebody held it is gone, and not among them.
        """
        if not self.exists(stream):
            return []
        if group not in self.groups(stream):
            taken = self.entries(stream)
            with self.client() as client:
                client.delete(stream)
            return taken
        held = [one.id for one in self.pending(stream, group)]
        taken = [entry for number in held if (entry := self.entry(stream, number)) is not None]
        self.ack(stream, *held, group=group)
        while more := self.read(stream, "checker", 1000, group=group):
            taken += more
            self.ack(stream, *(entry.id for entry in more), group=group)
        taken += self.delayed(stream)
        self.delete(f"{stream}.retry")
        return taken

    def delete(self, *keys: str) -> None:
        with self.client() as client:
            for key in keys:
                client.delete(key)

    def clear(self) -> None:
        """Delete the streams made here, and whatever is named after them."""
        with self.client() as client:
            for stream in self.made:
                pattern = "".join(f"[{sign}]" if sign in "*?[]" else sign for sign in stream)
                for key in list(client.scan_iter(f"{pattern}*")):
                    client.delete(key)
        self.made.clear()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of its own, for what the other methods do not offer."""
        with self.connect() as client:
            yield client


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _entry(found: tuple[bytes, Mapping[bytes, bytes]]) -> Entry:
    number, fields = found
    return Entry(_text(number), {_text(name): value for name, value in fields.items()})
