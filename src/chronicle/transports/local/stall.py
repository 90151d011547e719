"""A file that cannot be written at the moment: since when, when to try again, and what is logged.

Rule 1: a lock or a full disk is not a lost connection. What is held stays held, and nothing is handled twice.
Rule 2: the log gets one line when it begins and one when it is over, however many tries lie between. A lock
        is logged after a second, because other processes often write briefly; a full disk at once.
Rule 3: this decides; it reads no clock and never sleeps.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.notice import Notice
from chronicle.core.words import many
from chronicle.transports.local.schema import Stalled

AGAIN: Final = Backoff(0.05, 5.0)  # between two tries
HURRIED: Final = 0.25  # the longest wait between them when the process is about to end
LOGGED_AFTER: Final = 1.0  # seconds of a lock

BUSY: Final = "queue.busy"
FULL: Final = "queue.full"
OVER: Final = "queue.writable"


class Stall:
    """The tries since the file was last written, if they failed."""

    def __init__(self, notices: deque[Notice]) -> None:
        self._notices = notices
        self._since: float | None = None
        self._tries = 0
        self._next = 0.0
        self._longest = AGAIN.maximum
        self._logged = ""

    def failed(self, error: Stalled, now: float, unsettled: int) -> None:
        """A try failed; `unsettled` messages are done and wait for the file."""
        if self._since is None:
            self._since = now
        self._tries += 1
        self._next = now + min(AGAIN.ceiling(self._tries), self._longest)
        event, level, remedy = BUSY, logging.WARNING, "trying again"
        if error.needs_room:
            event, level, remedy = FULL, logging.ERROR, "free some space; it then continues by itself"
        elif now - self._since < LOGGED_AFTER:
            return
        if event != self._logged:
            self._logged = event
            waiting = many(unsettled, "message waits", "messages wait")
            text = f"{error}; {remedy}; {waiting} to be settled, no new ones are taken"
            self._notices.append(Notice(event, level, text, {"unsettled": unsettled}))

    def passed(self, now: float) -> None:
        """The file was written."""
        if self._since is None:
            return
        if self._logged:
            seconds = now - self._since
            facts = {"after_ms": round(seconds * 1000), "tries": self._tries}
            text = f"the queue file can be written again after {seconds:.1f} s"
            self._notices.append(Notice(OVER, logging.INFO, text, facts))
        self._since, self._tries, self._next, self._logged = None, 0, 0.0, ""

    def left(self, now: float) -> float:
        """Seconds until the next try; 0 for now."""
        return max(0.0, self._next - now)

    def hurry(self) -> None:
        """The process is about to end: try at once, and more often."""
        self._longest, self._next = HURRIED, 0.0
