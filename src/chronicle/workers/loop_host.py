"""The pump on an event loop, turned by callbacks: broker data, a finished syncer, a timer."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from time import monotonic
from typing import Final

from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import PULSE, Loan

# Seconds: a turn that is so little too late is not arranged anew, and none is arranged sooner. uvloop counts
# in milliseconds: what is due sooner would be called at once, and again, until it is due.
CLOSE: Final = 0.001


class LoopHost:
    """A loan of the pump, served by callbacks of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fileno: int, loan: Loan, mailbox: Mailbox) -> None:
        self._loop = loop
        self._mailbox = mailbox
        # Our own descriptor for the same poller: the transport may close its own while the loop is stuck.
        self._fileno = os.dup(fileno)
        self._loan = loan
        self._thread = 0
        self._asked = False
        self._early: asyncio.TimerHandle | None = None  # for a turn before the next pulse
        self._early_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start turning; called on the loop."""
        self._thread = threading.get_ident()
        self._loop.add_reader(self._fileno, self._turn)
        self._pulse()

    def end(self) -> None:
        """Let go of the poller; called on the loop."""
        if self._fileno >= 0:
            if self._timer is not None:
                self._timer.cancel()
            self._loop.remove_reader(self._fileno)
            os.close(self._fileno)
            self._fileno = -1

    def ask(self) -> None:
        """A syncer has finished: turn soon. From any thread."""
        if threading.get_ident() == self._thread:
            self._again()
        else:
            with suppress(RuntimeError):  # the loop has ended, and said why
                self._loop.call_soon_threadsafe(self._again)

    def _again(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._turn)

    def _pulse(self) -> None:
        if not self._loan.over:
            self._timer = self._loop.call_later(PULSE, self._pulse)
            self._turn()

    def _turn(self) -> None:
        self._asked = False
        due = self._loan.turn(0.0)
        self._mailbox.pump_sleeps = True  # until a result asks for the next turn
        if due is None:
            self.end()
        elif due == 0:
            self._again()
        elif due < PULSE:
            self._arrange(due)

    def _arrange(self, due: float) -> None:
        """One at a time: every turn finds the same thing due, and each timer would arrange the next."""
        at = monotonic() + due
        if self._early is not None:
            if self._early_at <= at + CLOSE:
                return
            self._early.cancel()
        self._early_at = at
        self._early = self._loop.call_later(max(CLOSE, due), self._turn_early)

    def _turn_early(self) -> None:
        self._early = None
        self._turn()
