"""Worker threads, for a syncer that is a plain function.

Rule 1: a worker that takes a delivery and sees another wakes one more worker, which does the same: a chain.
        A syncer that does nothing is then run by one thread, a slow one by all of them.
Rule 2: threads are daemons: a syncer that never returns cannot hold up a fatal exit (X4).
Rule 3: no thread ends unnoticed: whatever ends it, the pump is told.
Rule 4: every call sees the context variables as the syncer's context left them: after a call that changed one
        its thread continues in a fresh copy.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, Final

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Fatal
from chronicle.core.settlement import Settlement
from chronicle.errors import SettingError, SyncerError
from chronicle.workers.contention import Contention, Meter
from chronicle.workers.handler import Handler
from chronicle.workers.loader import Syncer
from chronicle.workers.mailbox import Backlog, Mailbox
from chronicle.workers.pump_loan import PULSE, Loan, Turn
from chronicle.workers.slot import Slot, calling
from chronicle.workers.switch_interval import SwitchInterval

BUSY: Final = 3  # with more than this many awake at once, syncers take their time


class ThreadWorkers:
    """Runs a plain function on threads that take from one deque."""

    def __init__(
        self,
        syncer: Syncer,
        handler: Callable[[Callable[..., Any]], Handler],
        concurrency: int,
        mailbox: Mailbox,
        *,
        alone: bool = True,
    ) -> None:
        self._syncer = syncer
        self._handler = handler
        self._concurrency = concurrency
        self._most = concurrency  # so many may be at work
        self._alone = alone  # in the process: nobody else minds how its threads are scheduled
        self._mailbox = mailbox
        self._backlog = Backlog()
        self._waiting = self._backlog.waiting
        self._idle: deque[threading.Lock] = deque()
        self._waking = False  # a worker was woken and is not running yet
        self._loan: Loan | None = None
        self._often = max(1, concurrency // 2)  # this many results are worth a turn of the pump
        self._over = False
        self._entered: Any = None
        self._context = Context()  # what every call starts with
        self._threads: list[threading.Thread] = []
        self.slots: list[Slot] = []

    def start(self) -> None:
        instance = self._syncer.make()
        if hasattr(instance, "__aenter__"):
            raise SyncerError(
                f"{self._syncer.name} is an async context manager with a plain __call__",
                "make its __call__ async, or use __enter__ and __exit__",
            )
        if hasattr(instance, "__enter__"):
            try:
                instance.__enter__()
            except BaseException as error:
                raise self._syncer.did_not_start(error) from error
            self._entered = instance
        self._context = copy_context()
        run = self._handler(instance).run
        for number in range(self._concurrency):
            thread = threading.Thread(target=self._work, args=(run,), name=f"syncer-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self.stop(PULSE)
                raise SettingError(
                    f"the system cannot start {self._concurrency} threads: only {number} started",
                    "choose a smaller --concurrency, or raise the limit on processes and memory",
                ) from None
            self._threads.append(thread)

    def submit(self, batch: Iterable[Delivery]) -> None:
        self._backlog.extend(batch)
        self._wake()

    def discard(self) -> list[Delivery]:
        return self._backlog.discard()

    def can_borrow(self) -> bool:
        return bool(self._idle)

    def borrow(self, turn: Turn, fileno: int) -> None:  # noqa: ARG002 - a thread waits in the turn itself
        self._loan = loan = Loan(turn)
        self._wake_one()
        try:
            if self._alone:
                self._wait_tuned(loan)
            else:
                loan.wait(lambda _: self._find_leader(loan))
        finally:
            self._loan = None

    def _wait_tuned(self, loan: Loan) -> None:
        """Wait for the pump, and let threads be scheduled meanwhile as it is best for messages."""
        switching = SwitchInterval(self._concurrency)
        contention = Contention(self._threads, Meter(lambda: self._mailbox.taken).pulse, self.limit)

        def woke(lateness: float) -> None:
            switching.judge(lateness)
            contention.judge()
            self._find_leader(loan)

        try:
            loan.wait(woke)
        finally:
            switching.restore()
            contention.restore()

    def _find_leader(self, loan: Loan) -> None:
        """Who led the pump may be at work on what it received, for long; somebody who sleeps leads then."""
        if loan.rests():
            self._wake_one()

    def stop(self, patience: float) -> bool:
        self._over = True
        while self._idle:
            self._wake_one()
        deadline = monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        if self._entered is not None:
            self._entered.__exit__(None, None, None)
        return True

    def _wake_one(self) -> None:
        with suppress(IndexError):
            sleeper = self._idle.popleft()
            self._waking = True  # before it can wake up and clear this
            sleeper.release()

    def _wake(self) -> None:
        """Wake one, which wakes the next; or, where syncers take their time, as many as there is work for."""
        at_work = self._at_work
        wanted = len(self._waiting) if at_work > BUSY else 1
        for _ in range(min(wanted, self._most - at_work)):
            if not self._idle:
                return
            self._wake_one()

    @property
    def _at_work(self) -> int:
        return self._concurrency - len(self._idle)

    def limit(self, most: int) -> None:
        """Let so many be at work; who is at work now finishes first."""
        raised, self._most = most > self._most, most
        if raised and self._waiting:
            self._wake()

    def _is_needed(self) -> bool:
        """Whether one who is about to sleep, and counts no longer, must go on."""
        return self._over or (bool(self._waiting) and self._at_work < self._most)

    def _lead(self, patience: float) -> bool:
        """Turn the pump, if it is here and no other thread does; whether it was turned."""
        loan = self._loan
        return loan is not None and loan.turn(patience) is not None

    def _work(self, run: Callable[[Delivery], Settlement]) -> None:
        sleep = threading.Lock()
        sleep.acquire()
        me = threading.get_ident()
        slot = Slot(lambda: calling(sys._current_frames().get(me)))
        self.slots.append(slot)
        try:
            while not self._context.copy().run(self._shift, run, sleep, slot):
                pass
        except BaseException as error:  # nobody else would notice that this place is empty from now on
            self._mailbox.put_crash(error)

    def _shift(self, run: Callable[[Delivery], Settlement], sleep: threading.Lock, slot: Slot) -> bool:
        """Work until a call has left its context changed (False), or all is over (True)."""
        waiting, idle, mailbox = self._waiting, self._idle, self._mailbox
        put, clean = mailbox.put, self._context
        while True:
            try:
                delivery = waiting.popleft()
            except IndexError:
                if self._over:
                    return True
                if not self._lead(PULSE):
                    self._sleep(sleep)
                continue
            if waiting and idle and not self._waking:
                self._wake()
            slot.delivery = delivery
            settlement = run(delivery)
            if type(settlement.outcome) is Fatal:
                self._backlog.halt()
            put(settlement)
            slot.delivery = None
            del delivery
            loan = self._loan
            if loan is not None and (len(mailbox) >= self._often or loan.is_late()):
                loan.turn(0.0)
            if copy_context() != clean:  # usually a pointer comparison: no variable was set
                return False
            if self._at_work > self._most:
                self._sleep(sleep)

    def _sleep(self, sleep: threading.Lock) -> None:
        """Wait until somebody wakes this one, unless it is needed."""
        idle = self._idle
        idle.append(sleep)
        # Check again, now that the others can see this one sleeping; whoever took the lock out of `idle`
        # meanwhile has released it or is about to.
        if self._is_needed():
            try:
                idle.remove(sleep)
                return
            except ValueError:
                pass
        sleep.acquire()
        self._waking = False
