"""Where syncers run: worker threads for plain functions, tasks on one event loop for async ones.

Rule 1: the pump hands over batches and takes back batches; it never waits here.
Rule 2: at most `concurrency` syncers run at any time.
Rule 3: the pump is woken only when it sleeps, and workers wake each other in a chain: with a syncer that
        does nothing the wake-ups, not the broker, are what costs.
Rule 4: threads are daemons: a syncer that never returns cannot keep a fatal exit waiting (X4).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Settlement
from chronicle.errors import SyncerError
from chronicle.runtime.handling import Handling
from chronicle.runtime.loader import Syncer
from chronicle.telemetry.masks import trace_of

FAIRNESS = 64  # deliveries an async worker may take in a row before others on its loop get a turn


class Mailbox:
    """Finished work on its way to the pump."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._done: deque[Settlement] = deque()
        self._wake = wake
        self.pump_sleeps = False
        self.crash: BaseException | None = None

    def put(self, settlement: Settlement) -> None:
        # Append first, look second; the pump says it sleeps first and looks second. So one of both sees.
        self._done.append(settlement)
        self._rouse()

    def put_crash(self, error: BaseException) -> None:
        """Something the person's code started by itself has died (R-004-3)."""
        self.crash = error
        self._rouse()

    def _rouse(self) -> None:
        if self.pump_sleeps:
            self.pump_sleeps = False
            self._wake()

    def take(self) -> list[Settlement]:
        done = self._done
        return [done.popleft() for _ in range(len(done))]

    def __bool__(self) -> bool:
        return bool(self._done) or self.crash is not None


class Workers(Protocol):
    """What the runner sees of either kind."""

    def start(self) -> None:
        """Make the syncer, enter it if it is a context manager, and be ready. Raises SyncerError."""

    def submit(self, batch: Iterable[Delivery]) -> None: ...

    def discard(self) -> list[Delivery]:
        """Take back what no worker has started."""

    def stop(self, patience: float) -> bool:
        """Leave the syncer's context; False if it did not end in time."""


def make_workers(
    syncer: Syncer, handling: Callable[[Callable[..., Any]], Handling], concurrency: int, mailbox: Mailbox
) -> Workers:
    """The workers this syncer needs."""
    kind = TaskWorkers if syncer.is_async else ThreadWorkers
    return kind(syncer, handling, concurrency, mailbox)


class ThreadWorkers:
    """Runs a plain function on threads that take from one deque."""

    def __init__(
        self,
        syncer: Syncer,
        handling: Callable[[Callable[..., Any]], Handling],
        concurrency: int,
        mailbox: Mailbox,
    ) -> None:
        self._syncer = syncer
        self._handling = handling
        self._concurrency = concurrency
        self._mailbox = mailbox
        self._waiting: deque[Delivery] = deque()
        self._idle: deque[threading.Lock] = deque()
        self._over = False
        self._context: Any = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        instance = _make(self._syncer)
        if hasattr(instance, "__aenter__"):
            raise SyncerError(
                f"{self._syncer.name} is an async context manager with a plain __call__",
                "make its __call__ async, or use __enter__ and __exit__",
            )
        if hasattr(instance, "__enter__"):
            try:
                instance.__enter__()
            except BaseException as error:
                raise _did_not_start(self._syncer, error) from error
            self._context = instance
        run = self._handling(instance).run
        for number in range(self._concurrency):
            thread = threading.Thread(target=self._work, args=(run,), name=f"syncer-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, batch: Iterable[Delivery]) -> None:
        self._waiting.extend(batch)
        self._wake_one()

    def discard(self) -> list[Delivery]:
        return _emptied(self._waiting)

    def stop(self, patience: float) -> bool:
        self._over = True
        while self._idle:
            self._wake_one()
        deadline = monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        if self._context is not None:
            self._context.__exit__(None, None, None)
        return True

    def _wake_one(self) -> None:
        with suppress(IndexError):
            self._idle.popleft().release()

    def _work(self, run: Callable[[Delivery], Settlement]) -> None:
        waiting, idle, put = self._waiting, self._idle, self._mailbox.put
        sleep = threading.Lock()
        sleep.acquire()
        while True:
            try:
                delivery = waiting.popleft()
            except IndexError:
                if self._over:
                    return
                idle.append(sleep)
                # Look again, now that the pump can see this one sleeping; whoever took the lock out of
                # `idle` meanwhile has released it or is about to.
                if waiting or self._over:
                    try:
                        idle.remove(sleep)
                        continue
                    except ValueError:
                        pass
                sleep.acquire()
                continue
            if waiting and idle:
                self._wake_one()
            put(run(delivery))
            del delivery


class TaskWorkers:
    """Runs a coroutine function as persistent tasks on an event loop in a thread of its own."""

    def __init__(
        self,
        syncer: Syncer,
        handling: Callable[[Callable[..., Any]], Handling],
        concurrency: int,
        mailbox: Mailbox,
    ) -> None:
        self._syncer = syncer
        self._handling = handling
        self._concurrency = concurrency
        self._mailbox = mailbox
        self._waiting: deque[Delivery] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._kicked = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="syncer-loop", daemon=True)
        self._ready = threading.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._problem: BaseException | None = None

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem

    def submit(self, batch: Iterable[Delivery]) -> None:
        self._waiting.extend(batch)
        if self._idle and not self._kicked:
            self._kicked = True
            self._loop.call_soon_threadsafe(self._kick)

    def discard(self) -> list[Delivery]:
        return _emptied(self._waiting)

    def stop(self, patience: float) -> bool:
        if not self._loop.is_closed():
            with suppress(RuntimeError):  # it may close by itself at this very moment
                self._loop.call_soon_threadsafe(lambda: self._over.done() or self._over.set_result(None))
        self._thread.join(patience)
        if self._thread.is_alive():
            return False
        if self._problem is not None:
            raise self._problem
        return True

    def _kick(self) -> None:
        self._kicked = False
        self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._uncaught)
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            self._problem = error
        finally:
            self._ready.set()
            self._loop.close()

    def _uncaught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._mailbox.put_crash(error)

    async def _live(self) -> None:
        """Enter the syncer, work until told to stop, leave the syncer."""
        instance = _make(self._syncer)
        leave = await self._enter(instance)
        run = self._handling(instance).run_async
        tasks = [asyncio.create_task(self._work(run), name=f"syncer-{n}") for n in range(self._concurrency)]
        self._ready.set()
        await self._over
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if leave is not None:
            await leave()

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
            raise _did_not_start(self._syncer, error) from error
        return None

    async def _work(self, run: Callable[[Delivery], Coroutine[Any, Any, Settlement]]) -> None:
        waiting, idle, put = self._waiting, self._idle, self._mailbox.put
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
                continue
            if waiting and idle:
                self._wake_one()
            put(await run(delivery))
            in_a_row += 1
            if in_a_row >= FAIRNESS:
                in_a_row = 0
                await asyncio.sleep(0)


def _make(syncer: Syncer) -> Any:
    try:
        return syncer.make()
    except BaseException as error:
        raise _did_not_start(syncer, error) from error


def _did_not_start(syncer: Syncer, error: BaseException) -> SyncerError:
    return SyncerError(
        f"the syncer {syncer.name} did not start: {type(error).__name__}: {error}",
        "see the lines above",
        trace=trace_of(error, None),
    )


def _emptied(waiting: deque[Delivery]) -> list[Delivery]:
    taken = []
    while waiting:
        try:
            taken.append(waiting.popleft())
        except IndexError:  # a worker was faster
            break
    return taken


def watch_other_threads(mailbox: Mailbox) -> None:
    """Let an exception in a thread the person's code started end the process (R-004-3)."""
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        before(args)
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            mailbox.put_crash(args.exc_value)

    threading.excepthook = hook
