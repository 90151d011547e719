"""The pump lent to the workers that run the syncers, as long as they respond.

A pump on its own thread costs two thread switches per batch, more than everything else together. So the
runner lends it: a worker that finishes a syncer, or has nothing to do, turns the pump itself.

Rule 1: only one thread turns the pump at a time: a turn is done under the loan's lock.
Rule 2: if no worker has turned it for a moment (a syncer blocks the event loop, all threads are busy) the
        runner takes it back, so heartbeats continue whatever a syncer does (RB5).
Rule 3: what takes time (connecting, draining, waiting for a broker that is away) is done by the runner.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeAlias

# Turn the pump, waiting at most this many seconds for the broker; the seconds until the next turn is due, or
# None to give the pump back.
Turn: TypeAlias = Callable[[float], float | None]

PULSE: Final = 0.25  # the longest between two turns of the pump, and so the precision of every deadline
LATE: Final = 0.01  # the longest a result waits for others to share its turn
STUCK: Final = 0.75  # without a turn for this long, the workers do not respond
HANGS: Final = 10.0  # a turn that takes this long is a bug, and is logged

logger = logging.getLogger(__name__)


class Loan:
    """One stay of the pump with its borrowers."""

    def __init__(self, pump: Turn) -> None:
        self.over = False
        self._pump = pump
        self._lock = threading.Lock()
        self._returned = threading.Lock()
        self._returned.acquire()
        self._last_turn = monotonic()
        self._error: BaseException | None = None

    def turn(self, patience: float) -> float | None:
        """Turn the pump, if it is here and no other thread does: when to turn it again, or None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self.over:
                return None
            self._last_turn = monotonic()
            try:
                due = self._pump(patience)
            except BaseException as error:
                self._error, due = error, None
            if due is None:
                self.over = True
                self._returned.release()
            return due
        finally:
            self._lock.release()

    def is_late(self) -> bool:
        """Whether what is finished has waited long enough for a turn."""
        return monotonic() - self._last_turn > LATE

    def rests(self) -> bool:
        """Whether nobody turns it, and has not for a moment."""
        return self.is_late() and not self._lock.locked()

    def wait(self, woke: Callable[[float], None] = lambda _lateness: None) -> bool:
        """Sleep until the pump is given back; False if it had to be taken. Raises what a turn raised.

        Called by the runner, on the main thread: signals are served meanwhile. A turn that does not return
        keeps the pump: no other thread may turn it, but the wait goes on in short steps, and is logged. After
        each step `woke` is told by how many seconds it was too long.
        """
        logged = False
        begun = monotonic()
        while not self._returned.acquire(timeout=PULSE):
            now = monotonic()
            woke(now - begun - PULSE)
            idle = now - self._last_turn
            if idle > STUCK and self._take():
                return False
            if idle > HANGS and not logged:
                logged = True
                logger.error(
                    "a turn of the pump has not returned for %.0f s; a second signal ends the process", idle
                )
            begun = monotonic()
        if self._error is not None:
            raise self._error
        return True

    def _take(self) -> bool:
        """Take the pump back, if no thread is turning it and it has not been given back."""
        if not self._lock.acquire(timeout=PULSE):
            return False
        try:
            taken, self.over = not self.over, True
            return taken
        finally:
            self._lock.release()
