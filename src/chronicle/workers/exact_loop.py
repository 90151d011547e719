"""The event loop of async syncers, with short timers that are exact.

epoll counts in milliseconds and Python rounds up, so with many timers each waits for the next whole
millisecond: a sleep of 5 ms takes 5.5 on average, and every timeout and pause of a syncer is as much longer.
select counts in microseconds, and an epoll can itself be watched. It is one more system call, so a long
wait, of which a millisecond is nothing, is left to epoll.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Final

HIGHEST: Final = 1023  # select takes no higher descriptor
SHORT: Final = 0.05  # seconds


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop, exact where the system allows it."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(ExactSelector())


class ExactSelector(selectors.EpollSelector):
    """An epoll that waits as long as it is told, if that is short."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and 0 < timeout < SHORT and self.fileno() <= HIGHEST:
            select.select((self,), (), (), timeout)
            timeout = 0
        return super().select(timeout)
