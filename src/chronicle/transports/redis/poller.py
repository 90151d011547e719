"""What a transport sleeps on: its connections and `wake`, in one descriptor that workers can watch."""

from __future__ import annotations

import select
from time import monotonic
from typing import Final

from chronicle.transports.redis.connection import Wire
from chronicle.transports.waker import Waker

GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Poller:
    """An epoll of our own, as long as there are connections."""

    def __init__(self, waker: Waker, *wires: Wire) -> None:
        self._waker = waker
        self._epoll = select.epoll()
        self._epoll.register(waker.fileno(), select.EPOLLIN)
        self._heeded: dict[int, int] = {}
        for wire in wires:
            self.watch(wire)

    def watch(self, wire: Wire) -> None:
        self._heeded[wire.fileno()] = select.EPOLLIN
        self._epoll.register(wire.fileno(), select.EPOLLIN)

    def heed(self, wire: Wire, *, data: bool) -> None:
        """Say whether data ends the sleep; the end of the connection always does."""
        wanted = select.EPOLLIN | select.EPOLLRDHUP if data else select.EPOLLRDHUP
        if self._heeded[wire.fileno()] != wanted:
            self._heeded[wire.fileno()] = wanted
            self._epoll.modify(wire.fileno(), wanted)

    def sleep(self, wire: Wire, deadline: float) -> dict[int, int]:
        """Sleep until something comes or `wake`; what is left to send on this wire goes as soon as it can.

        Returns what epoll says, by descriptor.
        """
        descriptor = wire.fileno()
        seen: dict[int, int] = {}
        while True:
            if wire.writing:
                self._epoll.modify(descriptor, self._heeded[descriptor] | select.EPOLLOUT)
            events = self._epoll.poll(max(0.0, deadline - monotonic()))
            if wire.writing:
                wire.flush()
                self._epoll.modify(descriptor, self._heeded[descriptor])
            awake = False
            for ready, event in events:
                if ready == self._waker.fileno():
                    self._waker.clear()
                else:
                    seen[ready] = seen.get(ready, 0) | event
                awake = awake or bool(event & ~select.EPOLLOUT)
            if awake or monotonic() >= deadline:
                return seen

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()
