"""A stream read without a group, for tests that turn its transport themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.redis.cursor import CursorTransport
from chronicle.transports.seam import Closing, Connector
from conformance.harness import settle, verdict
from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for

PATIENCE: Final = 30.0
START: Final = "0-0"


class Reader:
    """Makes transports for one stream, and closes them at the end; `key` keeps their position."""

    def __init__(self, url: str, stream: str) -> None:
        self.url = url
        self.stream = stream
        self.key = f"{stream}.cursor"
        self._made: list[CursorTransport] = []

    @classmethod
    def of(cls, server: RedisServer) -> Self:
        """For a new stream, in which is nothing, and which no group reads."""
        stream = server.streams.make(server.streams.name("cursor"))
        with server.client() as client:
            client.xgroup_destroy(stream, "chronicle")
        return cls(server.url, stream)

    def make(self, *, cursor: bool = True, prefetch: int = 10, begin: str = "start") -> CursorTransport:
        chosen = {"no_group": True, "from": begin, **({"cursor": self.key} if cursor else {})}
        transport = CursorTransport(Connector(self.url, self.stream, prefetch, choices=chosen))
        self._made.append(transport)
        return transport

    def open(self, *, cursor: bool = True, prefetch: int = 10, begin: str = "start") -> CursorTransport:
        return reopened(self.make(cursor=cursor, prefetch=prefetch, begin=begin))

    def close(self) -> None:
        for transport in self._made:
            transport.close()


def reopened(transport: CursorTransport) -> CursorTransport:
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    return transport


def take(transport: CursorTransport, wanted: int) -> list[Delivery]:
    got: list[Delivery] = []

    def enough() -> bool:
        got.extend(transport.receive(wanted - len(got), 0.05))
        return len(got) >= wanted

    wait_for(enough, PATIENCE, f"{wanted} entries", every=0)
    return got


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def nothing_comes(transport: CursorTransport) -> bool:
    return not any(transport.receive(10, 0.05) for _ in range(6))


def done(transport: CursorTransport, *deliveries: Delivery) -> None:
    assert set(settle(transport, *(verdict(one, Action.ACK) for one in deliveries))) == {Fate.DONE}


def kept(streams: Streams, reader: Reader) -> str:
    """The position in the key."""
    with streams.client() as client:
        value: bytes | None = client.get(reader.key)
    return START if value is None else value.decode()


def told(transport: CursorTransport, event: str) -> list[dict[str, Any]]:
    return [dict(notice.facts) for notice in transport.notices if notice.event == event]


def turn_until(transport: CursorTransport, condition: Callable[[], Any], what: str) -> None:
    def turned() -> Any:
        transport.receive(0, 0.02)
        transport.settle(())
        return condition()

    wait_for(turned, PATIENCE, what, every=0)
