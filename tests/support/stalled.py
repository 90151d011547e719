"""A terminal or a pipe whose reader has stalled, until the test lets it read again."""

from __future__ import annotations

import contextlib
import os
import pty
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

KINDS: Final = ("terminal", "pipe")


class Stalled:
    """Something to write to, and nobody who reads it."""

    def __init__(self, kind: str) -> None:
        self.reading, self.writing = pty.openpty() if kind == "terminal" else os.pipe()

    def fill(self) -> None:
        """Write until not one byte more fits; by a second opening, so that the first one still blocks."""
        with self._opened_again() as own, contextlib.suppress(BlockingIOError):
            while True:
                os.write(own, b".")

    def leave_room(self, room: int) -> None:
        """Fill it but for a few bytes: it says it is ready, and a longer write blocks all the same."""
        for _ in range(100):
            with contextlib.suppress(BlockingIOError):  # a terminal's room may be gone a moment later
                self._leave_room(room)
                return
        raise AssertionError("the room never stayed as it was measured")

    def _leave_room(self, room: int) -> None:
        self.fill()
        with self._opened_again() as own:
            ready = select.poll()
            ready.register(own, select.POLLOUT)
            while not ready.poll(1):  # room comes back in blocks
                os.read(self.reading, 1)
            fits = 0
            while ready.poll(0):
                fits += os.write(own, b".")
            while not ready.poll(1):
                os.read(self.reading, 1)
            for _ in range(fits - room):
                os.write(own, b".")

    @contextmanager
    def _opened_again(self) -> Iterator[int]:
        own = os.open(f"/proc/self/fd/{self.writing}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            yield own
        finally:
            os.close(own)

    def read(self, quiet: float = 0.02) -> bytes:
        """The reader is back: everything that comes, until nothing has come for so many seconds."""
        parts = []
        with contextlib.suppress(OSError):  # a terminal nobody has open any more
            while select.select([self.reading], [], [], quiet)[0]:
                part = os.read(self.reading, 65536)
                if not part:
                    break
                parts.append(part)
        return b"".join(parts)

    def hang_up(self) -> None:
        """Close the side that writes, in this process."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1


@contextmanager
def stalled_reader(kind: str) -> Iterator[Stalled]:
    """A terminal or a pipe nobody reads."""
    made = Stalled(kind)
    try:
        yield made
    finally:
        made.hang_up()
        os.close(made.reading)
