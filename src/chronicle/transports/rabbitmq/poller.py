"""The I/O loop pika runs on, turned by the pump one turn at a time.

pika's own loop wants a thread to itself and decides by itself how long it waits. This one is driven by its
caller: `turn(timeout)` serves what is ready and returns, `wake` ends a wait from any thread or signal
handler. It has the interface pika expects of a loop (`AbstractSelectorIOLoop`).
"""

from __future__ import annotations

import heapq
import select
from collections import deque
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any, Final

from chronicle.transports.waker import Waker

CATCH_UP: Final = 100  # turns
Handler = Callable[[int, int], None]


class Timer:
    """A call at a time; cancelled by forgetting the call."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call


class Poller:
    """File descriptors, timers and calls from other threads, served a turn at a time."""

    READ = select.POLLIN
    WRITE = select.POLLOUT
    ERROR = select.POLLERR | select.POLLHUP

    def __init__(self) -> None:
        # An epoll has a file descriptor of its own, so that another loop can watch this one.
        self._poll: Any = select.epoll() if hasattr(select, "epoll") else select.poll()
        self._scale = 1 if hasattr(select, "epoll") else 1000  # seconds, or thousandths
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._calls: deque[Callable[[], None]] = deque()
        self._waker = Waker()
        self.add_handler(self._waker.fileno(), self._awake, self.READ)

    def turn(self, timeout: float) -> None:
        """Wait at most `timeout`, then serve everything that is ready."""
        if self._calls:
            timeout = 0.0
        elif self._timers:
            timeout = min(timeout, max(0.0, self._timers[0][0] - monotonic()))
        for fd, events in self._poll.poll(timeout * self._scale):
            handler = self._handlers.get(fd)
            if handler is not None:  # an earlier handler of this turn may have removed it
                handler(fd, events)
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        self._serve_timers()

    def catch_up(self) -> None:
        """Serve what is already ready, without waiting; bounded, in case it never ends."""
        for _ in range(CATCH_UP):
            if not (self._calls or self._poll.poll(0)):
                break
            self.turn(0.0)

    def _serve_timers(self) -> None:
        while self._timers and self._timers[0][0] <= monotonic():
            timer = heapq.heappop(self._timers)[2]
            call, timer.call = timer.call, None
            if call is not None:
                call()

    def _awake(self, _fd: int, _events: int) -> None:
        self._waker.clear()

    def fileno(self) -> int | None:
        """Readable when a turn has something to serve; timers aside."""
        return int(self._poll.fileno()) if hasattr(self._poll, "fileno") else None

    def wake(self) -> None:
        self._waker.wake()

    # What pika expects of a loop -------------------------------------------------------------------

    def add_handler(self, fd: int, handler: Handler, events: int) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def update_handler(self, fd: int, events: int) -> None:
        self._poll.modify(fd, events)

    def remove_handler(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(monotonic() + delay, callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    def remove_timeout(self, timeout_handle: Timer) -> None:
        timeout_handle.call = None

    def add_callback(self, callback: Callable[[], None]) -> None:
        self._calls.append(callback)
        self._waker.wake()

    add_callback_threadsafe = add_callback

    def start(self) -> None:
        raise AssertionError("the pump turns this loop; it is never started")

    def stop(self) -> None:
        """Nothing to stop: the pump simply stops turning it."""

    def close(self) -> None:
        self._waker.close()
        self._handlers.clear()
        self._timers.clear()
        self._calls.clear()
        if hasattr(self._poll, "close"):
            self._poll.close()
