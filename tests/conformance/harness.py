"""What the conformance suite needs of a broker besides its transport, and the two that need no server.

A harness says how to fill a queue, how to look into its dead letters, and which of the shared cases make
sense for it. It knows nothing of what is tested.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from chronicle import testing
from chronicle.core.delivery import Delivery
from chronicle.core.order import parse_order
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import BrokerRefused
from chronicle.transports.lanes import Lanes
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.memory_broker import QueueTransport
from chronicle.transports.seam import Closing, Connector, Outgoing, Transport
from support.waiting import wait_for

PATIENCE: Final = 20.0
BY_CONTACT: Final = parse_order("field:contact.contactRef").lane_by_field


class Broker(Protocol):
    """One kind of broker, ready to use."""

    live: bool  # whether others publish while a transport is open
    shares: bool  # whether each message goes to one of several consumers
    misses_queues: bool  # whether a queue can be unknown
    reconnects: bool  # whether it reconnects by itself: a loss is not told, and ends nothing

    @property
    def lose_connection(self) -> Callable[[Transport], None] | None:
        """Cut this transport off from its broker; None where there is nothing to cut."""

    def new_queue(self, *, ordered: bool = False) -> str:
        """A queue nobody else uses, empty, whose dead letters are kept.

        What is published to an `ordered` one comes in that order, also where others have none.
        """

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        """A transport for this queue, not opened."""

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        """Put messages on the queue; they are there when this returns."""

    def dead_letters(self, queue: str) -> list[bytes]:
        """The bodies among the dead letters of this queue."""


class LocalBroker:
    """Queue files in a folder of the test."""

    live = True
    shares = True
    misses_queues = True
    reconnects = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "conformance.db"

    def new_queue(self, *, ordered: bool = False) -> str:
        queue = f"test.{secrets.token_hex(4)}"
        self.publish(queue, [])
        return queue

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return LocalTransport(self._connector(queue, prefetch))

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        with LocalPublisher(self._connector(queue)) as publisher:
            publisher.publish([Outgoing(body) for body in bodies])

    def dead_letters(self, queue: str) -> list[bytes]:
        transport = self.make_transport(f"{queue}.dlq")
        try:
            return [delivery.body for delivery in opened(transport).receive(1000, 0)]
        except BrokerRefused:
            return []  # the first dead letter makes the queue
        finally:
            transport.close()

    def lose_connection(self, transport: Transport) -> None:
        """Take away the lock files: whoever misses its own must not go on."""
        for lock in Path(f"{self._file}-owners").iterdir():
            lock.unlink()

    def _connector(self, queue: str, prefetch: int = 10) -> Connector:
        return Connector(f"local:{self._file}", queue, prefetch)


class MemoryBroker:
    """Lists of deliveries; a transport takes what was published before it was made."""

    live = False
    shares = False
    misses_queues = False
    reconnects = False
    lose_connection = None

    def __init__(self) -> None:
        self._messages: dict[str, list[Delivery]] = {}
        self._dead: dict[str, list[bytes]] = {}

    def new_queue(self, *, ordered: bool = False) -> str:
        queue = f"test.{secrets.token_hex(4)}"
        self._messages[queue], self._dead[queue] = [], []
        return queue

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return MemoryTransport(
            self._messages[queue], on_dead_letter=lambda s: self._dead[queue].append(s.delivery.body)
        )

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        self._messages[queue] += [Delivery(body, queue=queue, transport="memory") for body in bodies]

    def dead_letters(self, queue: str) -> list[bytes]:
        return self._dead[queue]


class ProgramsBroker:
    """The broker in memory that `chronicle.testing` has for programs."""

    live = True
    shares = True
    misses_queues = False
    reconnects = False

    def __init__(self) -> None:
        self._broker = testing.MemoryBroker(delays=True)

    def new_queue(self, *, ordered: bool = False) -> str:
        return f"test.{secrets.token_hex(4)}"

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return self._broker.record.transport(Connector("", queue, prefetch))

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        self._broker.publish(queue, *bodies)

    def dead_letters(self, queue: str) -> list[bytes]:
        return [letter.body for letter in self._broker.dead_letters(queue)]

    def lose_connection(self, transport: Transport) -> None:
        cast(QueueTransport, transport).cut()


class InLanes:
    """Another broker, whose messages are handled in the order of a field (D-23)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.live, self.shares, self.misses_queues = broker.live, broker.shares, broker.misses_queues
        self.reconnects = broker.reconnects
        self.new_queue, self.publish, self.dead_letters = (
            broker.new_queue,
            broker.publish,
            broker.dead_letters,
        )
        self.lose_connection = broker.lose_connection

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return Lanes(self._broker.make_transport(queue, prefetch), BY_CONTACT)


def opened(transport: Transport) -> Transport:
    """Open a transport as the engine does, also after a loss."""
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    return transport


def verdict(delivery: Delivery, action: Action, delay: float = 0.0) -> Settlement:
    return Settlement(delivery, Synced(), Verdict(action, "for the test", delay))


def settle(transport: Transport, *work: Settlement, turns: int = 200) -> list[Fate]:
    """Settle and turn the broker's I/O until all of it is final; the fates in the order given."""
    return await_fates(transport, work, transport.settle(work), turns)


def await_fates(
    transport: Transport, work: Sequence[Settlement], final: Sequence[Settlement], turns: int = 200
) -> list[Fate]:
    """Turn the broker's I/O until all of this work is final, of which some may be; the fates of all."""
    known = {id(settlement) for settlement in final}
    for _ in range(turns):
        if known >= {id(settlement) for settlement in work}:
            break
        assert not transport.receive(0, 0.05)
        known |= {id(settlement) for settlement in transport.settle(())}
    assert known >= {id(settlement) for settlement in work}, "a verdict never became final"
    return [settlement.fate for settlement in work]


def take(transport: Transport, wanted: int, room: int = 0) -> list[Delivery]:
    """Receive until so many are here, with room for no more, or for so many; fails when they do not come."""
    got: list[Delivery] = []

    def enough() -> bool:
        got.extend(transport.receive((room or wanted) - len(got), 0.05))
        return len(got) >= wanted

    wait_for(enough, PATIENCE, f"{wanted} deliveries", every=0)
    return got


def nothing_comes(transport: Transport, room: int = 10, turns: int = 6) -> bool:
    return not any(transport.receive(room, 0.05) for _ in range(turns))
