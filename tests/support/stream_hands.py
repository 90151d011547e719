"""A consumer of a Redis stream at the seam, in the hands of a test: it turns the pump and gives verdicts.

Nothing happens between two turns, so what a frozen, slow or unlucky process does can be done exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Failed, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ConnectionLost
from chronicle.transports.redis.consumer import StreamTransport
from chronicle.transports.seam import Closing, Connector, never
from support.redis_server import RedisServer

PATIENCE: Final = 20.0
TURN: Final = 0.02  # seconds


class Hands:
    """One consumer; `choices` are the options of Redis, by their names."""

    def __init__(
        self,
        server: RedisServer,
        stream: str,
        *,
        url: str = "",
        tag: str = "hands",
        prefetch: int = 5,
        **choices: Any,
    ) -> None:
        self.tag = tag
        self.prefetch = prefetch
        self.transport = StreamTransport(
            Connector(url or server.url, stream, tag=tag, prefetch=prefetch, choices=choices)
        )
        self.transport.open(never)
        self.said: list[str] = []  # the events of all notices so far

    def turn(self, room: int | None = None) -> list[Delivery]:
        """One turn of the pump, in the engine's order: verdicts go first. Raises ConnectionLost."""
        self.transport.settle(())
        came = list(self.transport.receive(self.prefetch if room is None else room, TURN))
        while self.transport.notices:
            self.said.append(self.transport.notices.popleft().event)
        return came

    def turn_until(self, condition: Callable[[], object], what: str, *, room: int = 0) -> list[Delivery]:
        """Turn until this is so; what came meanwhile."""
        came: list[Delivery] = []
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}; it said {self.said}"
            came += self.turn(room)
        return came

    def turn_for(self, seconds: float, *, room: int = 0) -> list[Delivery]:
        """Turn for so long; what came meanwhile."""
        end = time.monotonic() + seconds
        return self.turn_until(lambda: time.monotonic() >= end, "the end", room=room)

    def get(self, number: int, *, room: int | None = None) -> list[Delivery]:
        """The next so many deliveries."""
        came: list[Delivery] = []
        deadline = time.monotonic() + PATIENCE
        while len(came) < number:
            assert time.monotonic() < deadline, f"{len(came)} of {number} came; it said {self.said}"
            came += self.turn(min(self.prefetch if room is None else room, number - len(came)))
        return came

    def hear(self, event: str) -> None:
        """Turn until it has said this."""
        self.turn_until(lambda: event in self.said, event)

    def give(self, delivery: Delivery, action: Action, *, delay: float = 0.0) -> Settlement:
        """Give a verdict, and do not wait for what becomes of it."""
        outcome = Synced() if action is Action.ACK else Failed()
        settlement = Settlement(delivery, outcome, Verdict(action, "as the test says", delay))
        self.transport.settle((settlement,))
        return settlement

    def settle(self, delivery: Delivery, action: Action, *, delay: float = 0.0) -> Fate:
        """Give a verdict; what became of it."""
        settlement = self.give(delivery, action, delay=delay)
        self.turn_until(lambda: settlement.fate is not Fate.OPEN, f"the {action} to be carried out")
        return settlement.fate

    def reconnect(self) -> None:
        """Lose the connection, and open another one."""
        self.transport.close(Closing.LOST)
        self.transport.open(never)

    def turn_or_reconnect(self) -> list[Delivery]:
        """A turn, or a new connection if the old one is gone."""
        try:
            return self.turn()
        except ConnectionLost:
            self.reconnect()
            return []

    def reaches_the_end(self) -> bool:
        """Whether it says within a moment that there is nothing left; it takes nothing in for that."""
        self.turn_for(0.2)
        return self.transport.is_empty() is True

    def leave(self, why: Closing = Closing.SETTLED) -> None:
        self.transport.close(why)


@contextmanager
def hands(server: RedisServer, stream: str, **wanted: Any) -> Iterator[Hands]:
    """One consumer for a while; whatever happens, its connections are closed."""
    consumer = Hands(server, stream, **wanted)
    try:
        yield consumer
    finally:
        consumer.leave(Closing.LOST)


def left_behind(server: RedisServer, stream: str, consumer: str, number: int, *, idle: float) -> list[str]:
    """Let a consumer take so many entries and be silent for so many seconds; their ids."""
    ids = [entry.id for entry in server.streams.read(stream, consumer, number)]
    with server.client() as client:
        client.xclaim(stream, "chronicle", consumer, 0, ids, idle=round(idle * 1000), justid=True)
    return ids


def is_over(delivery: Delivery) -> bool:
    """Whether it is no longer ours."""
    assert delivery.lease is not None
    return delivery.lease.over
