"""When a run ends by itself: its bounds, watched turn by turn. Decides; reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chronicle.core.delivery import Delivery
from chronicle.runtime.job import Bounds
from chronicle.runtime.returns import Returns
from chronicle.telemetry.counters import Counters


class Watch:
    """What the last turns brought, and whether a bound is reached."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._bounds = bounds
        self._returns = Returns()
        self._started = self._last_delivery = now
        self.quiet = False  # the last turn brought nothing
        self._saw_empty = False  # and before it the broker said that nothing waits

    def connected(self, now: float) -> None:
        """What was seen on an earlier connection says nothing about the queue now."""
        self._last_delivery = now
        self.quiet = self._saw_empty = False

    def turned(self, batch: Sequence[Delivery], now: float) -> None:
        """A turn is over, and brought these."""
        self.quiet = not batch
        if batch:
            self._saw_empty = False
            self._last_delivery = now
            self._returns.came(batch)

    def asks_broker(self, held: int) -> bool:
        """Whether only the broker can say if this is the end; asking takes time."""
        return self._bounds.until_empty and self.quiet and not held

    def hurries(self, held: int) -> bool:
        """Whether the next turn should not wait: the queue may be empty, and then the run is over."""
        return self._saw_empty or (self._bounds.until_empty and not held and not self.quiet)

    def time_is_up(self, now: float) -> bool:
        limit = self._bounds.max_time
        return limit is not None and now - self._started >= limit

    def reached(self, now: float, counters: Counters, held: int, depth: Callable[[], int | None]) -> str:
        """Which bound is reached, in words; whether the queue is empty only the broker knows."""
        bounds = self._bounds
        self._returns.requeued(counters.requeued, now)
        if bounds.max_messages is not None and counters.received >= bounds.max_messages:
            return f"{bounds.max_messages} messages received"
        if self.time_is_up(now):
            return "time is up"
        if held or not self.quiet:
            return ""
        if bounds.idle_timeout is not None and now - self._last_delivery >= bounds.idle_timeout:
            return "idle"
        if bounds.until_empty and not self._returns.awaited(now):
            if self._saw_empty:
                return "the queue is empty"
            # What the broker pushed before it answered is here by now: the turn that follows brings it.
            self._saw_empty = depth() == 0
        return ""
