"""A broker that does what a test says: loses connections, cancels, refuses, and remembers everything.

Its queue behaves like a classic RabbitMQ queue: what was held on a lost connection comes back first and
flagged as redelivered, a requeue goes back to the end, a verdict of an older epoch is stale. Every method
may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery, Lease
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.errors import ChronicleError, ConnectionLost
from chronicle.transports.seam import Closing, Promises
from chronicle.transports.waker import Waker

# Reconnects take next to no time, so that a test may have many.
PROMISES: Final = Promises("scripted", backoff=Backoff(0.001, 0.002))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the queue; its number never changes."""

    number: int
    body: bytes
    redelivered: bool = False


@dataclass(frozen=True, slots=True)
class Handle:
    """What a verdict needs to find its message."""

    epoch: int
    tag: int
    number: int


@dataclass(frozen=True, slots=True)
class Carried:
    """A verdict that was carried out, and in which epoch."""

    handle: Handle
    action: Action
    epoch: int


class ScriptedTransport:
    """One queue of a broker that obeys a test, as the engine sees it."""

    away = 0.0
    unconfirmed = 0

    @property
    def depth(self) -> int | None:
        return len(self.queue)

    def __init__(self, *bodies: bytes, promises: Promises = PROMISES) -> None:
        self.promises = promises
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.place = "nowhere"
        self.queue: deque[Message] = deque()
        self.held: dict[int, Message] = {}
        self.carried: list[Carried] = []  # verdicts the broker got and knew
        self.left: list[int] = []  # what the engine said nobody will handle
        self.leases: dict[int, Lease] = {}  # by tag, where a test wants one: `with_leases`
        self.with_leases = False
        self.asked: list[Handle] = []  # every delivery that was ever settled, stale or not
        self.refusals: deque[ChronicleError] = deque()  # what the next tries to open it raise
        self.unreachable: ChronicleError | None = None  # what all of them raise
        self.empties: deque[bool | None] = deque()  # what the next questions whether it is empty are answered
        self.delivered = self.most_held = self.opened = self.turns = self.published = 0
        self._end: ConnectionLost | None = None
        self._open = self._stopped = False
        self._waker = Waker()
        self._lock = threading.RLock()
        self.publish(*bodies)

    # --- what a test does ---------------------------------------------------------------------------

    def publish(self, *bodies: bytes) -> None:
        with self._lock:
            for body in bodies:
                self.queue.append(Message(self.published, body))
                self.published += 1
        self._waker.wake()

    def lose(self, error: ConnectionLost | None = None) -> None:
        """Cut the connection, if there is one: the next turn finds out, the queue has all back now."""
        with self._lock:
            if self._open:
                self._end = self._end or error or ConnectionLost("cut by the test")
                self._lose()
        self._waker.wake()

    def fates(self, action: Action) -> list[int]:
        """The numbers of the messages this was done to, in order."""
        return [carried.handle.number for carried in self.carried if carried.action is action]

    # --- the seam -----------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        self.machine.fire(EmbeddedEvent.OPEN)
        if stopping():
            return None
        with self._lock:
            self.opened += 1
            if self.refusals:
                raise self.refusals.popleft()
            if self.unreachable is not None:
                raise self.unreachable
            self._open, self._stopped, self._end = True, False, None
            self.machine.fire(EmbeddedEvent.OPENED)
            return len(self.queue)

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        self.turns += 1
        with self._lock:
            batch = self._take(room)
        if not batch:
            self._waker.wait(timeout)
            with self._lock:
                batch = self._take(room)
        return batch

    def _take(self, room: int) -> list[Delivery]:
        self._look_for_the_end()
        if self._stopped:
            return []
        batch = []
        for _ in range(min(room, len(self.queue))):
            message = self.queue.popleft()
            self.delivered += 1
            self.held[self.delivered] = message
            handle = Handle(self.opened, self.delivered, message.number)
            lease = self.leases.setdefault(self.delivered, Lease()) if self.with_leases else None
            batch.append(
                Delivery(
                    message.body,
                    queue="q",
                    transport="scripted",
                    redelivered=message.redelivered,
                    handle=handle,
                    lease=lease,
                )
            )
        self.most_held = max(self.most_held, len(self.held))
        return batch

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        with self._lock:
            if self._open and any(s.delivery.handle.epoch == self.opened for s in work):
                self._look_for_the_end()
            for settlement in work:
                self._settle(settlement)
        return work

    def _settle(self, settlement: Settlement) -> None:
        handle: Handle = settlement.delivery.handle
        action = settlement.verdict.action
        if action is Action.LEAVE:  # the queue has it back when the connection closes
            settlement.fate = Fate.DONE if self._is_held(handle) else Fate.STALE
            self.left.append(handle.number)
            return
        self.asked.append(handle)
        if not self._is_held(handle):
            settlement.fate = Fate.STALE
            return
        settlement.fate = Fate.DONE
        message = self.held.pop(handle.tag)
        self.carried.append(Carried(handle, action, self.opened))
        if action is Action.REQUEUE:
            self.queue.append(replace(message, redelivered=True))
            self._waker.wake()

    def _is_held(self, handle: Handle) -> bool:
        outlives = self.promises.late_results or handle.epoch == self.opened
        lease = self.leases.get(handle.tag)
        return (
            handle.tag in self.held
            and (not self.promises.settles or (self._open and outlives))
            and not (lease is not None and lease.over)
        )

    def is_empty(self) -> bool | None:
        with self._lock:
            self._look_for_the_end()
            return self.empties.popleft() if self.empties else not self.queue

    def stop(self, patience: float) -> None:
        with self._lock:
            self.machine.fire(EmbeddedEvent.STOP)
            if self._open:
                self._look_for_the_end()
            self._stopped = True

    def close(self, why: Closing = Closing.SETTLED) -> None:
        with self._lock:
            if why is Closing.LOST:
                self._lose()
            else:
                self._give_back()
            self._open = False
            if why is not Closing.LOST:
                self.machine.fire(EmbeddedEvent.STOP)
            self.machine.fire(EmbeddedEvent(why))

    def wake(self) -> None:
        self._waker.wake()

    def fileno(self) -> int | None:
        return self._waker.fileno()

    def _look_for_the_end(self) -> None:
        if self._end is not None:
            raise self._end
        if not self._open:
            raise ConnectionLost("not open")

    def _lose(self) -> None:
        """A connection ends: the queue has everything back, unless claims outlive it or nothing is kept."""
        if self.promises.settles and not self.promises.late_results:
            self._give_back()

    def _give_back(self) -> None:
        self.queue.extendleft(replace(message, redelivered=True) for message in reversed(self.held.values()))
        self.held.clear()
