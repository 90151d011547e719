"""How long to wait for a broker, and when to give up (D-6, D-9, RB19).

Rule: `Patience` decides and never sleeps; `reach` is the loop for commands that run without the engine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from chronicle.core.backoff import Backoff
from chronicle.engine.job import Lifecycle
from chronicle.errors import BrokerError, BrokerUnreachable, ChronicleError, ConnectionLost, ProtocolFault
from chronicle.transports.seam import Promises, never, nothing

T = TypeVar("T")

HEALTHY = 10.0  # a connection that lived this long, or settled something, resets the backoff
SHORTEST_TRY = 1.0  # the last try may begin at the very end of the timeout, and still gets this long
TURN = 0.25  # seconds between two looks at what goes on beside a wait
FAULT_LIMIT = 5  # this many unreadable answers in a row, with nothing settled between them (RB13)


class Patience:
    """The tries so far, and what they allow."""

    def __init__(self, lifecycle: Lifecycle, backoff: Backoff, luck: Callable[[], float], now: float) -> None:
        self._lifecycle = lifecycle
        self._backoff = lifecycle.backoff or backoff
        self._luck = luck
        self._away_since = now
        self._connected_at: float | None = None
        self._progressed = False
        self._faults = 0
        self.tries = 0  # failed ones, since the last good connection

    @property
    def ever_connected(self) -> bool:
        return self._connected_at is not None

    def away(self, now: float) -> float:
        """Seconds without a connection."""
        return now - self._away_since

    def connected(self, now: float) -> None:
        self._connected_at = now
        self._progressed = False

    def progressed(self) -> None:
        """Something was settled. A delivery is not progress: the broker may be unable to accept its ack."""
        self._progressed = True
        self.tries = 0

    def lost(self, error: ConnectionLost, now: float) -> float:
        """The connection is gone: seconds until the next try."""
        assert self._connected_at is not None
        if self._progressed or now - self._connected_at >= HEALTHY:
            self.tries = 0
        if self._progressed:
            self._faults = 0
        else:
            self.saw(error)
        self._away_since = now
        self.tries += 1
        return self._delay()

    def saw(self, error: ChronicleError) -> None:
        """Count answers that could not be read; any other problem between them resets the count.

        A failed try counts like a connection: the unreadable answer is often the last one while opening.
        """
        self._faults = self._faults + 1 if isinstance(error, ProtocolFault) else 0

    @property
    def unreadable(self) -> bool:
        """The broker keeps sending bytes that cannot be read."""
        return self._faults >= FAULT_LIMIT

    def failed(self, now: float) -> float | None:
        """A try failed: seconds until the next, or None to give up."""
        self.tries += 1
        left = self.left(now)
        return min(self._delay(), left) if left > 0 else None

    def try_from(self, start: float) -> Callable[[float], bool]:
        """A try begins: a function that says when it has lasted too long, however short the timeout was.

        A transport may keep the function; a try that led to a connection is over and was not too long.
        """

        def too_late(now: float) -> bool:
            succeeded = self._connected_at is not None and self._connected_at >= start
            return not succeeded and now - start >= SHORTEST_TRY and self.left(now) <= 0

        return too_late

    def left(self, now: float) -> float:
        """Seconds until it is time to give up."""
        limit = self._lifecycle.give_up_after if self.ever_connected else self._lifecycle.startup_timeout
        return self._away_since + limit - now if limit else float("inf")

    def _delay(self) -> float:
        return self._backoff.delay(self.tries, self._luck())


def no_answer(place: str) -> BrokerUnreachable:
    """A try that lasted too long."""
    return BrokerUnreachable(f"{place}: no answer in time")


def reach(
    attempt: Callable[[Callable[[], bool]], T],
    startup_timeout: float,
    tell: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    luck: Callable[[], float] = random.random,
) -> T:
    """The result of the attempt; an unreachable broker is retried until the timeout.

    The attempt is given a function that says when to call it off, because the time is up.
    """
    patience = Patience(Lifecycle(startup_timeout), Promises("").backoff, luck, clock())
    while True:
        too_late = patience.try_from(clock())
        try:
            return attempt(lambda: too_late(clock()))  # noqa: B023 - the attempt is over before the next
        except BrokerError as error:
            delay = patience.failed(clock())
            if delay is None:
                raise
            tell(f"{error}; trying again")
            sleep(delay)


def pause(
    seconds: float,
    *,
    stopping: Callable[[], bool] = never,
    meanwhile: Callable[[], None] = nothing,
) -> None:
    """Sleep, with something to do meanwhile; a stop ends it."""
    until = time.monotonic() + seconds
    while not stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, TURN))
        meanwhile()
