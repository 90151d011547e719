"""A stream that cannot hurt the consumer.

Rule 1: a broken pipe, a full disk or a reader that stopped reading costs lines, never the process and never
        a message. Lines that could not be written are counted, and reported when the reader is back.
Rule 2: what the reader does not take at once is buffered, up to `MOST_KEPT`, and written before anything
        else: a line is never torn by a pause.
Rule 3: when the buffer is full, a write waits at most `PATIENCE`, and all writes together never more than
        half of the time; if the reader took nothing meanwhile, no write waits again until it is back. So a
        slow reader slows a run down, a stalled one does not, and heartbeats continue with either (X7).
"""

from __future__ import annotations

from threading import RLock
from time import monotonic
from typing import Final, TextIO

from chronicle.telemetry.way_out import way_out

MOST_KEPT: Final = 1024 * 1024  # bytes
PATIENCE: Final = 0.25  # shorter than the pump may pause before it counts as stuck
CATCH_UP: Final = 0.05  # how long a reader that has just taken something is given for more
FAREWELL: Final = 1.0  # how long the end of a run waits for the buffer to empty


class SafeStream:
    """Writes whole lines to a stream; from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self.dropped = 0  # lines, in all
        self._untold = 0
        self._lock = RLock()
        self._out = way_out(stream)
        self._kept = bytearray()
        self._torn = False  # the last byte written is inside a line
        self._broken = False  # the last attempt failed for good
        self._stuck = False  # the last wait achieved nothing
        self._saved = PATIENCE  # how long a wait may take
        self._counted = monotonic()  # when that was so
        try:
            self.is_terminal = stream.isatty()
        except (OSError, ValueError):
            self.is_terminal = False

    @property
    def is_behind(self) -> bool:
        """Whether there is something the reader has not taken yet."""
        return bool(self._kept)

    @property
    def is_full(self) -> bool:
        """Whether the buffer is full."""
        return len(self._kept) >= MOST_KEPT

    def write(self, lines: bytes) -> None:
        """Write lines, each with its newline, or buffer them, or drop them; never raises."""
        with self._lock:
            if self.is_full and not self._stuck:
                self._wait_for_room()
            if self.is_full:
                self._drain()  # as much as a reader takes that has just come back
            if self.is_full:
                self.drop(lines.count(b"\n"))
                return
            if self._broken and self._torn and not self._kept:
                self._kept += b"\n"
            self._kept += lines
            self._drain()

    def drop(self, lines: int) -> None:
        """Count lines that are not written."""
        with self._lock:
            self.dropped += lines
            self._untold += lines

    def take_untold(self) -> int:
        """How many lines were lost since the last call; zero until the reader is back."""
        with self._lock:
            if self._drain() and self._kept:
                self._drain(CATCH_UP)
            if self._kept or self._broken:
                return 0
            untold, self._untold = self._untold, 0
            return untold

    def finish(self) -> None:
        """Write what is buffered, if the reader takes it in time."""
        with self._lock:
            self._stuck = not self._drain(0.0 if self._stuck else FAREWELL) and self.is_behind

    def _wait_for_room(self) -> None:
        now = monotonic()
        patience = min(PATIENCE, self._saved + now - self._counted)
        self._stuck = not self._drain(patience, enough=MOST_KEPT - 1)
        self._counted = monotonic()
        self._saved = patience - (self._counted - now)

    def _drain(self, patience: float = 0.0, enough: int = 0) -> bool:
        """Write until at most `enough` is buffered or `patience` is over; whether anything was taken."""
        kept = self._kept
        deadline = monotonic() + patience if patience > 0 else 0.0
        took = False
        try:
            while len(kept) > enough:
                try:
                    taken = self._out.put(kept)
                except BlockingIOError:
                    left = deadline - monotonic() if deadline else 0.0
                    if left <= 0 or not self._out.wait(left):
                        break
                    continue
                took = True
                self._broken = self._stuck = False
                self._torn = kept[taken - 1] != ord("\n")
                del kept[:taken]
        except (OSError, ValueError):
            # ValueError: the stream was closed. The next write tries again: a disk may have space then.
            self._broken = True
            # A leading newline only ends a torn line.
            self.drop(kept.count(b"\n") - kept.startswith(b"\n"))
            kept.clear()
        return took
