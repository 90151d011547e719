"""What waits in a queue in memory: some of it now, some of it later.

Rule: what is due comes after those that wait already, so a message that fails does not keep others waiting.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final

from chronicle.core.delivery import Delivery

NEVER: Final = float("inf")


class Backlog:
    """Deliveries in the order in which they are to be handed out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: deque[Delivery] = deque()
        self._later: list[tuple[float, int, Delivery]] = []
        self._order = count()

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """At the end."""
        self._ready.extend(deliveries)

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """At the front, in their order."""
        self._ready.extendleft(reversed(deliveries))

    def put_later(self, delivery: Delivery, delay: float) -> None:
        """For another try after so many seconds."""
        heapq.heappush(self._later, (self._clock() + delay, next(self._order), delivery))

    def take(self, room: int) -> list[Delivery]:
        """The first of those that are due."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        return [self._ready.popleft() for _ in range(min(room, len(self._ready)))]

    def due(self) -> float:
        """Seconds until a delayed one may be taken."""
        return self._later[0][0] - self._clock() if self._later else NEVER

    def __len__(self) -> int:
        """What waits, delayed or not."""
        return len(self._ready) + len(self._later)
