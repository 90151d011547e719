"""A queue in memory, filled from an iterator: for `replay`, and for users' own tests.

Rule 1: the source is read as there is room, so gigabytes of captures pass through a few messages at a time.
        A requeued message that is due comes before a new one, and after those requeued earlier: if it were
        kept to the end, a capture of failures would pile up in memory.
        If it fails, all that was read before is handed out and settled first.
Rule 2: a delivery is handed out as the source made it, its handle too, but for its lease (held.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from copy import copy

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.transports.backlog import Backlog
from chronicle.transports.held import Held
from chronicle.transports.seam import Closing, Promises
from chronicle.transports.waker import Waker


class MemoryTransport:
    """One queue of messages that are already here, as the engine sees it."""

    promises = Promises("memory", delays=True, counts=True)
    away = 0.0
    unconfirmed = 0

    def __init__(
        self,
        source: Iterable[Delivery],
        *,
        on_dead_letter: Callable[[Settlement], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        place: str = "memory",
    ) -> None:
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.place = place
        self._source = iter(source)
        self._failure: Exception | None = None  # of the source, not yet raised
        self._unread = len(source) if isinstance(source, Sized) else None  # None: unknown
        self._on_dead_letter = on_dead_letter
        self._waker = Waker()
        self._backlog = Backlog(clock)
        self._held = Held()
        self._stopped = False

    def open(self, stopping: Callable[[], bool]) -> int | None:
        """Begin; how many messages there are, if the source says."""
        self.machine.fire(EmbeddedEvent.OPEN)
        if stopping():
            return None
        self._stopped = False
        self.machine.fire(EmbeddedEvent.OPENED)
        return self.depth

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        """Take what is due and then what is new; wait only for a delayed message, or `wake`."""
        deadline = time.monotonic() + timeout
        while True:
            taking = room > 0 and not self._stopped
            if taking and (taken := self._take(room)):
                return self._held.hand_out(taken)
            left = deadline - time.monotonic()
            if self._waker.wait(min(left, self._backlog.due() if taking else left)) or left <= 0:
                return ()

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Carry the verdicts out; all are final at once."""
        return self._held.settle(work, bury=self._on_dead_letter, put_later=self._backlog.put_later)

    def is_empty(self) -> bool | None:
        """Whether it is empty; None until the source's length is known or it is exhausted."""
        depth = self.depth
        return None if depth is None else depth == 0

    @property
    def depth(self) -> int | None:
        """How many are left, as far as the source says."""
        return None if self._unread is None else self._unread + len(self._backlog)

    def stop(self, patience: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Hand out nothing more; what is held can still be settled."""
        self._stopped = True
        self.machine.fire(EmbeddedEvent.STOP)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Take back what was not settled, unchanged and in order."""
        self._backlog.put_back([copy(delivery) for delivery in self._held.take_back()])
        if why is not Closing.LOST:
            self.machine.fire(EmbeddedEvent.STOP)
        self.machine.fire(EmbeddedEvent(why))

    def wake(self) -> None:
        """End a wait in `receive`. Called from any thread."""
        self._waker.wake()

    def fileno(self) -> int | None:
        """There is no descriptor to watch."""
        return None

    def _take(self, room: int) -> list[Delivery]:
        taken = self._backlog.take(room)
        wanted = room - len(taken)
        if wanted and self._unread != 0:
            taken += self._read(wanted)
        if self._failure is not None and not (taken or self._held or self._backlog):
            raise self._failure
        return taken

    def _read(self, wanted: int) -> list[Delivery]:
        """What is new; a failure of the source is kept until nothing that came before it is left."""
        new: list[Delivery] = []
        try:
            while len(new) < wanted and self._failure is None:
                new.append(next(self._source))
        except StopIteration:
            self._unread = 0
        except Exception as error:
            self._failure = error
        if self._unread:
            self._unread -= len(new)
        return new
