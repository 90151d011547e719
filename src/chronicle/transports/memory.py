"""A queue in memory, filled from an iterator: for `replay`, and for users' own tests.

Rule 1: the source is read as there is room, so gigabytes of captures pass through a few messages at a time.
        A requeued message that is due comes before a new one, and after those requeued earlier: if it were
        kept to the end, a capture of failures would pile up in memory.
Rule 2: a delivery is handed out as the source made it, its handle too, but with a new lease every time: by
        that a verdict about an earlier try is recognised as stale.
"""

from __future__ import annotations

import copy
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import count, islice
from typing import Final

from chronicle.core.delivery import Delivery, Lease
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.transports.seam import Closing, Promises
from chronicle.transports.waker import Waker

NEVER: Final = float("inf")


class MemoryTransport:
    """One queue of messages that are already here, as the engine sees it."""

    promises = Promises("memory", delays=True, counts=True)
    away = 0.0
    unconfirmed = 0

    def __init__(
        self,
        source: Iterable[Delivery],
        *,
        on_dead_letter: Callable[[Settlement], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        place: str = "memory",
    ) -> None:
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.place = place
        self._source = iter(source)
        self._unread = len(source) if isinstance(source, Sized) else None  # None: unknown
        self._on_dead_letter = on_dead_letter
        self._clock = clock
        self._waker = Waker()
        self._ready: deque[Delivery] = deque()
        self._later: list[tuple[float, int, Delivery]] = []
        self._order = count()
        self._held: dict[Lease | None, Delivery] = {}
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
                for delivery in taken:
                    delivery.lease = lease = Lease()
                    self._held[lease] = delivery
                return taken
            left = deadline - time.monotonic()
            due = self._later[0][0] - self._clock() if taking and self._later else NEVER
            if self._waker.wait(min(left, due)) or left <= 0:
                return ()

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Carry the verdicts out; all are final at once."""
        for settlement in work:
            lease = settlement.delivery.lease
            held = lease in self._held
            settlement.fate = Fate.DONE if held else Fate.STALE
            if held and settlement.verdict.action is not Action.LEAVE:
                self._carry_out(settlement)
                del self._held[lease]
        return work

    def is_empty(self) -> bool | None:
        """Whether it is empty; None until the source's length is known or it is exhausted."""
        depth = self.depth
        return None if depth is None else depth == 0

    @property
    def depth(self) -> int | None:
        """How many are left, as far as the source says."""
        return None if self._unread is None else self._unread + len(self._ready) + len(self._later)

    def stop(self, patience: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Hand out nothing more; what is held can still be settled."""
        self._stopped = True
        self.machine.fire(EmbeddedEvent.STOP)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Take back what was not settled, unchanged and in order."""
        self._ready.extendleft(copy.copy(delivery) for delivery in reversed(self._held.values()))
        self._held.clear()
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
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        taken = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        wanted = room - len(taken)
        if wanted and self._unread != 0:
            new = list(islice(self._source, wanted))
            if len(new) < wanted:
                self._unread = 0
            elif self._unread is not None:
                self._unread -= len(new)
            taken += new
        return taken

    def _carry_out(self, settlement: Settlement) -> None:
        if settlement.verdict.action is Action.DEAD_LETTER and self._on_dead_letter is not None:
            self._on_dead_letter(settlement)
        elif settlement.verdict.action in (Action.REQUEUE, Action.RETRY):
            again = settlement.delivery.again(round(time.time() * 1000))
            delay = settlement.verdict.delay or 0.0
            heapq.heappush(self._later, (self._clock() + delay, next(self._order), again))
