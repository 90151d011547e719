"""What goes between the pump and the workers.

Rule: the pump is woken only when it sleeps; with a syncer that does nothing, the wake-ups cost more than the
      broker.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Settlement


class Mailbox:
    """Finished work on its way to the pump."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._done: deque[Settlement] = deque()
        self.wake = wake
        self.pump_sleeps = False
        self.taken = 0  # so far
        self.crash: BaseException | None = None

    def put(self, settlement: Settlement) -> None:
        # Append first, check second; the pump marks itself asleep first, checks second: one of them notices.
        self._done.append(settlement)
        self.rouse()

    def put_quietly(self, settlement: Settlement) -> None:
        """For the pump's next turn, whenever that is."""
        self._done.append(settlement)

    def put_crash(self, error: BaseException) -> None:
        """A thread or task that the user's code started has died (R-004-3)."""
        self.crash = error
        self.rouse()

    def rouse(self) -> None:
        """Wake the pump, if it sleeps."""
        if self.pump_sleeps:
            self.pump_sleeps = False
            self.wake()

    def take(self) -> list[Settlement]:
        done = self._done
        taken = [done.popleft() for _ in range(len(done))]
        self.taken += len(taken)
        return taken

    def __len__(self) -> int:
        return len(self._done)

    def __bool__(self) -> bool:
        return bool(self._done) or self.crash is not None


class Backlog:
    """Deliveries on their way to the workers, who take them out of `waiting`."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self._kept: list[Delivery] = []  # from when nothing was to begin any more
        self._halted = False

    def extend(self, batch: Iterable[Delivery]) -> None:
        self.waiting.extend(batch)
        # Add first, check second; `halt` does it the other way round: one of them notices.
        if self._halted:
            self.halt()

    def halt(self) -> None:
        """Let nothing more begin: a worker has seen what ends the run, and the pump has not yet."""
        self._halted = True
        self._kept += _emptied(self.waiting)

    def discard(self) -> list[Delivery]:
        """Take out what no worker has taken."""
        kept, self._kept = self._kept, []
        return kept + _emptied(self.waiting)


def _emptied(waiting: deque[Delivery]) -> list[Delivery]:
    """Take everything out; workers may keep taking meanwhile."""
    taken = []
    while waiting:
        try:
            taken.append(waiting.popleft())
        except IndexError:  # a worker was faster
            break
    return taken


@contextmanager
def watch_other_threads(mailbox: Mailbox) -> Iterator[None]:
    """Let an exception in a thread the user's code started end the run (R-004-3).

    Not for a program that is there for more than this run: nobody knows whose thread it was.
    """
    before = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        before(args)
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            mailbox.put_crash(args.exc_value)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
