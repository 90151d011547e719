"""When a run ends by itself: its bounds, checked every turn. Decides; reads no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.words import many
from chronicle.engine.job import Bounds
from chronicle.telemetry.counters import Counters

RETURN_WAIT: Final = 5.0  # seconds


class Returns:
    """What this process put back on its queue and has not seen again, by the redelivered flag.

    A quorum queue takes its time to requeue a message and reports itself empty meanwhile, so `--until-empty`
    waits for it. Another consumer may have received the message, so the wait is short.
    """

    def __init__(self) -> None:
        self._requeued = 0
        self._awaited = 0
        self._since = 0.0

    def requeued(self, total: int, now: float) -> None:
        """This many were requeued since the start."""
        if total > self._requeued:
            self._awaited += total - self._requeued
            self._requeued = total
            self._since = now

    def came(self, batch: Sequence[Delivery]) -> None:
        if self._awaited:
            self._awaited = max(0, self._awaited - sum(delivery.redelivered for delivery in batch))

    def awaited(self, now: float) -> bool:
        """Whether an empty queue may only seem empty."""
        return self._awaited > 0 and now - self._since < RETURN_WAIT


class BoundsWatch:
    """What the last turns brought, and whether a bound is reached."""

    def __init__(self, bounds: Bounds, now: float) -> None:
        self._bounds = bounds
        self._returns = Returns()
        self._started = self._last_delivery = now
        self.quiet = False  # the last turn had room, and brought nothing
        self._saw_empty = False  # and before it the broker said that the queue is empty

    def connected(self, now: float) -> None:
        """What was seen on an earlier connection says nothing about the queue now."""
        self._last_delivery = now
        self.quiet = self._saw_empty = False

    def turned(self, batch: Sequence[Delivery], now: float, *, had_room: bool = True) -> None:
        """A turn has ended, and brought these; where there was no room, nothing says nothing."""
        self.quiet = not batch and had_room
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

    def reached(self, now: float, counters: Counters, held: int, is_empty: Callable[[], bool | None]) -> str:
        """Which bound is reached, in words; only the broker knows whether the queue is empty."""
        bounds = self._bounds
        self._returns.requeued(counters.requeued, now)
        if bounds.max_messages is not None and counters.received >= bounds.max_messages:
            return f"{many(bounds.max_messages, 'message')} received"
        if self.time_is_up(now):
            return "time is up"
        if held or not self.quiet:
            return ""
        if bounds.idle_timeout is not None and now - self._last_delivery >= bounds.idle_timeout:
            return "idle"
        if bounds.until_empty and not self._returns.awaited(now):
            if self._saw_empty:
                return "the queue is empty"
            # What the broker pushed before it answered has arrived by now: the next turn brings it.
            self._saw_empty = is_empty() is True
        return ""
