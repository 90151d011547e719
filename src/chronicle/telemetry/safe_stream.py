"""A stream that cannot hurt the consumer.

Rule 1: a broken pipe, a full disk or a reader that stopped reading costs lines, never the process and never
        a message. Lines that could not be written are counted, and told when the reader is back.
Rule 2: what the reader does not take at once is kept, up to `MOST_KEPT`, and written before anything else: a
        line is never torn by a pause.
Rule 3: when no more can be kept, a write waits at most `PATIENCE`, and all writes together never more than
        half of the time; for a reader that took nothing meanwhile none waits again before it is back. So a
        slow reader slows a run down and a stalled one does not, and heartbeats go on with either (X7).
"""

from __future__ import annotations

from threading import RLock
from time import monotonic
from typing import Final, TextIO

from chronicle.telemetry.way_out import way_out

MOST_KEPT: Final = 1024 * 1024  # bytes
PATIENCE: Final = 0.25  # shorter than the pump may stand still before it counts as stuck
CATCH_UP: Final = 0.05  # how long a reader who has just taken something is given for more
FAREWELL: Final = 1.0  # how long the end of a run waits for what is kept


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
        self._stuck = False  # the last wait was in vain
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
        """Whether nothing more can be kept."""
        return len(self._kept) >= MOST_KEPT

    def write(self, lines: bytes) -> None:
        """Write lines, each with its end, or keep them, or drop them; never raises."""
        with self._lock:
            if self.is_full and not self._stuck:
                self._wait_for_room()
            if self.is_full:
                self._drain()  # as much as a reader takes who has just come back
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
        """How many lines were lost since this was last asked; none until the reader is back."""
        with self._lock:
            if self._drain() and self._kept:
                self._drain(CATCH_UP)
            if self._kept or self._broken:
                return 0
            untold, self._untold = self._untold, 0
            return untold

    def finish(self) -> None:
        """Write what is kept, if the reader takes it in time."""
        with self._lock:
            self._stuck = not self._drain(0.0 if self._stuck else FAREWELL) and self.is_behind

    def _wait_for_room(self) -> None:
        now = monotonic()
        patience = min(PATIENCE, self._saved + now - self._counted)
        self._stuck = not self._drain(patience, enough=MOST_KEPT - 1)
        self._counted = monotonic()
        self._saved = patience - (self._counted - now)

    def _drain(self, patience: float = 0.0, enough: int = 0) -> bool:
        """Write until no more than enough is kept or patience is at its end; whether anything was taken."""
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
            # ValueError: somebody closed the stream. The next write tries again: a disk may have room then.
            self._broken = True
            # What begins with an end of line only ends a torn one.
            self.drop(kept.count(b"\n") - kept.startswith(b"\n"))
            kept.clear()
        return took
