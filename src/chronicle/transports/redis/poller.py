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
        self._watched: dict[int, int] = {}  # what the epoll knows
        for wire in wires:
            self.watch(wire)

    def watch(self, wire: Wire) -> None:
        self._heeded[wire.fileno()] = self._watched[wire.fileno()] = select.EPOLLIN
        self._epoll.register(wire.fileno(), select.EPOLLIN)

    def heed(self, wire: Wire, *, data: bool) -> None:
        """Say whether data ends the sleep; the end of the connection always does."""
        self._heeded[wire.fileno()] = select.EPOLLIN | select.EPOLLRDHUP if data else select.EPOLLRDHUP
        self._renew(wire)

    def flush(self, wire: Wire) -> None:
        """Send what was put; if something is left, room for it wakes whoever sleeps on this or watches it."""
        wire.flush()
        self._renew(wire)

    def _renew(self, wire: Wire) -> None:
        descriptor = wire.fileno()
        wanted = self._heeded[descriptor] | (select.EPOLLOUT if wire.writing else 0)
        if self._watched[descriptor] != wanted:
            self._watched[descriptor] = wanted
            self._epoll.modify(descriptor, wanted)

    def sleep(self, wire: Wire, deadline: float) -> dict[int, int]:
        """Sleep until something comes or `wake`; what is left to send on this wire goes as soon as it can.

        Returns what epoll says, by descriptor.
        """
        seen: dict[int, int] = {}
        self._renew(wire)
        while True:
            events = self._epoll.poll(max(0.0, deadline - monotonic()))
            if wire.writing:
                self.flush(wire)
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
