"""A stream that cannot hurt the consumer.

Rule 1: a broken pipe, a full disk or a reader that stopped reading costs lines, never the process and never
        a message. Lines that could not be written are counted.
Rule 2: no write waits for a reader longer than `PATIENCE`; after that, lines are dropped at once until the
        reader is back, so that heartbeats go on.
"""

from __future__ import annotations

import os
import select
from threading import RLock
from typing import Final, TextIO

PATIENCE: Final = 1.0
# A pipe that is ready takes this much without blocking.
_PIECE: Final = select.PIPE_BUF


class SafeStream:
    """Writes whole lines to a stream, past Python's buffers if the stream is a real file.

    What stays in a buffer that cannot be emptied would change the exit code of the process at its end.
    """

    def __init__(self, stream: TextIO) -> None:
        self.dropped = 0
        self._stream = stream
        self._lock = RLock()  # log records come from any thread
        self._torn = False
        self._stuck = False
        try:
            self._fd: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._fd = None

    def write(self, lines: bytes) -> None:
        """Write lines, each with its end; never raises."""
        with self._lock:
            if self._torn:
                lines = b"\n" + lines
            written = self._put(lines)
            self.dropped += lines.count(b"\n", written)
            self._torn = self._torn if written == 0 else not lines[:written].endswith(b"\n")

    def _put(self, lines: bytes) -> int:
        """Write as much as the reader takes; how much that was."""
        written = 0
        try:
            if self._fd is None:
                self._stream.write(lines.decode())
                self._stream.flush()
                return len(lines)
            ready = select.poll()
            ready.register(self._fd, select.POLLOUT)
            while written < len(lines) and ready.poll(0 if self._stuck else PATIENCE * 1000):
                written += os.write(self._fd, lines[written : written + _PIECE])
            self._stuck = written < len(lines)
        except BlockingIOError:
            self._stuck = True
        except (OSError, ValueError):
            # ValueError: somebody closed the stream. The next write tries again: a disk may have room then.
            pass
        return written
