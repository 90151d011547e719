"""Tasks on one event loop, for a syncer that is a coroutine function.

Rule 1: the loop has its own thread, so a call that blocks it stops other syncers at worst and never the
        heartbeats (RB5). On a program's own loop the tasks are guests: they start and end there, touch
        nothing else on it, and are not given the pump.
Rule 2: the tasks live as long as the run and take from one deque; they wake one another in a chain, as
        threads do.
Rule 3: the loop never dies silently: whatever ends it, the pump is notified.
Rule 4: every call sees the context variables as the syncer's context left them: a task in which a call has
        changed one is replaced by a fresh task, because a task cannot get rid of it. So is one that was
        cancelled, because its syncer was past its time or by its syncer itself. One that is cancelled while
        it has nothing to do ends the run: nobody knows who did that, or what it was for.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

import uvloop

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Fatal
from chronicle.core.settlement import Settlement
from chronicle.errors import SyncerError
from chronicle.telemetry.redaction import Place
from chronicle.workers.handler import Handler
from chronicle.workers.loader import Syncer
from chronicle.workers.loop_host import LoopHost
from chronicle.workers.mailbox import Backlog, Mailbox
from chronicle.workers.pump_loan import LATE, Loan, Turn
from chronicle.workers.slot import Slot, awaiting, calling

CANCELLED = (
    "a worker was cancelled between two messages: cancel only tasks that your syncer itself has started"
)
FAIRNESS = 64  # the most deliveries a worker may take in a row before others on its loop get a turn


class TaskWorkers:
    """Runs a coroutine function as persistent tasks on an event loop in its own thread."""

    def __init__(
        self,
        syncer: Syncer,
        handler: Callable[[Callable[..., Any]], Handler],
        concurrency: int,
        mailbox: Mailbox,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._syncer = syncer
        self._handler = handler
        self._concurrency = concurrency
        self._mailbox = mailbox
        self._backlog = Backlog()
        self._waiting = self._backlog.waiting
        self._idle: deque[asyncio.Future[None]] = deque()
        self._kicked = False
        self._often = max(1, concurrency // 2)  # this many results are worth a turn of the pump
        # One may not empty the prefetch in a row: the broker would send nothing meanwhile.
        self._in_a_row = min(FAIRNESS, concurrency)
        self._sharing = False  # results wait for others, to share a turn
        self._waking = False  # a worker was woken and is not running yet
        self._is_guest = loop is not None
        self._loop = loop or uvloop.new_event_loop()
        self._thread = 0  # where the loop runs
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._problem: BaseException | None = None
        self._answers = True  # as far as is known, nothing blocks the loop
        self._tasks: set[asyncio.Task[None]] = set()
        self.slots: list[Slot] = []
        self._context = Context()  # what every call starts with

    def start(self) -> None:
        if self._is_guest:
            self._call(self._visit)
        else:
            threading.Thread(target=self._run_loop, name="syncer-loop", daemon=True).start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem

    def submit(self, batch: Iterable[Delivery]) -> None:
        self._backlog.extend(batch)
        if not self._idle or self._kicked:
            return
        if threading.get_ident() == self._thread:  # the pump is here
            self._wake_one()
        else:
            self._kicked = True
            self._call(self._kick)

    def discard(self) -> list[Delivery]:
        return self._backlog.discard()

    def can_borrow(self) -> bool:
        return self._answers and not self._is_guest

    def borrow(self, turn: Turn, fileno: int) -> None:
        loan = Loan(turn)
        hosting = LoopHost(self._loop, fileno, loan, self._mailbox)
        wake, self._mailbox.wake = self._mailbox.wake, hosting.ask
        self._call(hosting.begin)
        try:
            if not loan.wait():
                self._answers = False
                self._call(self._answer)
        finally:
            self._mailbox.wake = wake
            self._call(hosting.end)

    def _answer(self) -> None:
        self._answers = True

    def stop(self, patience: float) -> bool:
        self._call(self._end)
        if not self._ended.wait(patience):
            return False
        if self._problem is not None:
            raise self._problem
        return True

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the mailbox says why, or it was asked to end
            self._loop.call_soon_threadsafe(function)

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _kick(self) -> None:
        self._kicked = False
        self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                self._waking = True
                return

    def _run_loop(self) -> None:
        self._thread = threading.get_ident()
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._uncaught)
        try:
            self._loop.run_until_complete(self._live())
            self._loop.run_until_complete(self._tidy_up())
        except BaseException as error:
            self._problem = error
            self._mailbox.put_crash(error)
        finally:
            self._ready.set()
            self._loop.close()
            self._ended.set()

    def _visit(self) -> None:
        """Begin on a program's own loop; called there."""
        self._thread = threading.get_ident()
        self._visitor = self._loop.create_task(self._live(), name="chronicle")
        self._visitor.add_done_callback(self._visited)

    def _visited(self, life: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if life.cancelled() else life.exception()
        if error is not None:
            self._problem = error
            self._mailbox.put_crash(error)
        self._ready.set()
        self._ended.set()

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._mailbox.put_crash(error)

    def _hire(self, handler: Handler, number: int) -> None:
        """Put a fresh task into this place."""
        work = self._work(handler, number)
        task = self._loop.create_task(work, name=f"syncer-{number}", context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._worker_ended)
        slot = Slot(
            lambda: self._places(task),
            lambda: self._blocks(task),
            lambda delivery: self._call(lambda: _cancel(task, slot, delivery)),
        )
        self.slots[number : number + 1] = [slot]

    def _blocks(self, task: asyncio.Task[None]) -> bool:
        """Whether this task keeps the loop from everybody else now."""
        return asyncio.current_task(self._loop) is task

    def _places(self, task: asyncio.Task[None]) -> Iterator[Place]:
        if self._blocks(task):
            return calling(sys._current_frames().get(self._thread))
        return awaiting(task.get_coro())

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks:
            return  # it was replaced
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
        else:
            error = None if self._over.done() else SyncerError(CANCELLED)
        if error is not None:
            self._mailbox.put_crash(error)

    async def _live(self) -> None:
        """Enter the syncer, work until told to stop, leave the syncer."""
        instance = self._syncer.make()
        leave = await self._enter(instance)
        handler = self._handler(instance)
        self._context = copy_context()
        for number in range(self._concurrency):
            self._hire(handler, number)
        self._ready.set()
        await self._over
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if leave is not None:
            await leave()

    async def _tidy_up(self) -> None:
        """End what the user's code left on the loop, as `asyncio.run` does.

        A thread behind `asyncio.to_thread` that does not end keeps this from ending: then `stop` returns
        False, and the process exits without waiting for that thread.
        """
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    async def _enter(self, instance: Any) -> Callable[[], Coroutine[Any, Any, None]] | None:
        try:
            if hasattr(instance, "__aenter__"):
                await instance.__aenter__()

                async def leave() -> None:
                    await instance.__aexit__(None, None, None)

                return leave
            if hasattr(instance, "__enter__"):
                instance.__enter__()

                async def leave_plainly() -> None:
                    instance.__exit__(None, None, None)

                return leave_plainly
        except BaseException as error:
            raise self._syncer.did_not_start(error) from error
        return None

    def _put(self, settlement: Settlement) -> None:
        """Have the pump turned at once if a worker would wait for it; otherwise results share a turn."""
        mailbox = self._mailbox
        if type(settlement.outcome) is Fatal:
            self._backlog.halt()
        mailbox.put_quietly(settlement)
        if not self._waiting or len(mailbox) >= self._often:
            mailbox.rouse()
        elif not self._sharing:
            self._sharing = True
            self._loop.call_later(LATE, self._share)

    def _share(self) -> None:
        """They have waited long enough for others."""
        self._sharing = False
        if self._mailbox:
            self._mailbox.rouse()

    async def _work(self, handler: Handler, number: int) -> None:
        if self._is_guest:  # where a program's loop starts tasks at once, this one has no place yet
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        waiting, idle, put = self._waiting, self._idle, self._put
        run, slot, clean = handler.run_async, self.slots[number], self._context
        in_a_row = 0
        while not self._over.done():
            try:
                delivery = waiting.popleft()
            except IndexError:
                in_a_row = 0
                future = self._loop.create_future()
                idle.append(future)
                if waiting:  # the pump added some before it could see this one idle
                    future.cancel()
                    continue
                await future
                self._waking = False
                continue
            if waiting and idle and not self._waking:
                self._wake_one()
            slot.delivery = delivery
            settlement = await run(delivery)
            slot.delivery = None
            if slot.expired:
                handler.too_late(settlement)
            put(settlement)
            # The last is usually a pointer comparison: no variable was set.
            if slot.expired or task.cancelling() or copy_context() != clean:
                self._tasks.discard(task)
                self._hire(handler, number)
                return
            in_a_row += 1
            if in_a_row >= self._in_a_row:
                in_a_row = 0
                await asyncio.sleep(0)


def _cancel(task: asyncio.Task[None], slot: Slot, delivery: Delivery) -> None:
    """On the loop: what it has by now may be another one, which is not to blame."""
    if slot.delivery is delivery and not slot.expired:
        slot.expired = True
        task.cancel()
