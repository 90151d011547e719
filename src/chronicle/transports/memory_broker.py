"""A broker in memory: queues with dead letters, for tests of programs that publish and subscribe.

Rule 1: it behaves like a broker that counts tries and delays them itself. What a consumer held when it closed
        is back in its place, marked as redelivered, as RabbitMQ does it.
Rule 2: several consumers share a queue, and whoever publishes may be on any thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from threading import RLock

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.errors import ConnectionLost
from chronicle.transports.backlog import Backlog
from chronicle.transports.held import Held
from chronicle.transports.seam import Closing, Promises
from chronicle.transports.waker import Waker

NAME = "memory"


class MemoryQueue:
    """What waits in one queue, and what has died there."""

    def __init__(self, *, delays: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._delays = delays
        self.dead: list[Settlement] = []
        self._lock = RLock()
        self._backlog = Backlog(clock)
        self._consumers: set[QueueTransport] = set()

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """At the end of the queue."""
        with self._lock:
            self._backlog.put(deliveries)
        self._ring()

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """At the front of the queue, in their order."""
        with self._lock:
            self._backlog.put_back(deliveries)
        self._ring()

    def put_later(self, delivery: Delivery, delay: float) -> None:
        """For another try after so many seconds, or at once where nobody wants to wait."""
        with self._lock:
            self._backlog.put_later(delivery, delay if self._delays else 0.0)
        self._ring()

    def take(self, room: int) -> list[Delivery]:
        with self._lock:
            return self._backlog.take(room)

    def due(self) -> float:
        """Seconds until a delayed message may be taken."""
        with self._lock:
            return self._backlog.due()

    def __len__(self) -> int:
        """What waits, delayed or not."""
        with self._lock:
            return len(self._backlog)

    def attach(self, consumer: QueueTransport) -> None:
        with self._lock:
            self._consumers.add(consumer)

    def detach(self, consumer: QueueTransport) -> None:
        with self._lock:
            self._consumers.discard(consumer)

    def cut(self) -> int:
        """Break the connection of every consumer; how many there were."""
        with self._lock:
            consumers = tuple(self._consumers)
        for consumer in consumers:
            consumer.cut()
        return len(consumers)

    def _ring(self) -> None:
        with self._lock:
            consumers = tuple(self._consumers)
        for consumer in consumers:
            consumer.wake()


class QueueTransport:
    """One consumer of a queue in memory, as the engine sees it."""

    promises = Promises(NAME, delays=True, counts=True)
    place = NAME
    away = 0.0
    unconfirmed = 0

    def __init__(self, queue: MemoryQueue) -> None:
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self._queue = queue
        self._waker = Waker()
        self._held = Held()
        self._stopped = False
        self._cut = False

    def open(self, stopping: Callable[[], bool]) -> int | None:
        self.machine.fire(EmbeddedEvent.OPEN)
        if stopping():
            return None
        self._stopped = self._cut = False
        self._queue.attach(self)
        self.machine.fire(EmbeddedEvent.OPENED)
        return len(self._queue)

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        deadline = time.monotonic() + timeout
        while True:
            self._look()
            taking = room > 0 and not self._stopped
            if taking and (taken := self._queue.take(room)):
                return self._held.hand_out(taken)
            left = deadline - time.monotonic()
            if self._waker.wait(min(left, self._queue.due() if taking else left)) or left <= 0:
                self._look()
                return ()

    def _look(self) -> None:
        if self._cut:
            raise ConnectionLost(f"{self.place}: the connection was cut")

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Carry the verdicts out; all are final at once."""
        return self._held.settle(work, bury=self._queue.dead.append, put_later=self._queue.put_later)

    @property
    def depth(self) -> int | None:
        return len(self._queue)

    def is_empty(self) -> bool | None:
        return len(self._queue) == 0

    def stop(self, patience: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        self._stopped = True
        self.machine.fire(EmbeddedEvent.STOP)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Give back what was not settled, in order."""
        self._queue.detach(self)
        self._queue.put_back([_redelivered(delivery) for delivery in self._held.take_back()])
        if why is not Closing.LOST:
            self.machine.fire(EmbeddedEvent.STOP)
        self.machine.fire(EmbeddedEvent(why))

    def cut(self) -> None:
        """Lose the connection, from any thread."""
        self._cut = True
        self.wake()

    def wake(self) -> None:
        self._waker.wake()

    def fileno(self) -> int | None:
        return None


def _redelivered(delivery: Delivery) -> Delivery:
    again = copy(delivery)
    again.redelivered = True
    return again
