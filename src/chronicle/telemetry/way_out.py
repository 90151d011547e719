"""Output channels that accept what fits now and never wait for a reader.

Rule 1: O_NONBLOCK belongs to the open file, which a shell or a child may share: a terminal or a pipe is
        opened a second time, so that the flag is ours alone.
Rule 2: where that is not allowed (a terminal or a pipe of another user, a socket) a thread of its own
        writes, and waits so that nobody else does. A poll would not help: a terminal says it is ready when
        one byte fits, and then blocks until every line did.
"""

from __future__ import annotations

import os
import select
import stat
import weakref
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, Protocol, TextIO

_PIECE: Final = select.PIPE_BUF  # bytes handed to the thread at a time
_AT_ONCE: Final = 0.01  # seconds; a reader that is there has taken a piece by then


class WayOut(Protocol):
    """Where bytes go."""

    def put(self, data: bytes | bytearray) -> int:
        """Write what fits; how much that was. BlockingIOError if nothing did, OSError if it failed."""

    def wait(self, seconds: float) -> bool:
        """Wait until something fits; whether it does."""


class Unnumbered:
    """A stream without a file descriptor: it never blocks."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def put(self, data: bytes | bytearray) -> int:
        self._stream.write(data.decode())
        self._stream.flush()
        return len(data)

    def wait(self, seconds: float) -> bool:  # noqa: ARG002 - nothing changes by waiting
        return False


class Descriptor:
    """Our own descriptor that does not block: a regular file, or a second opening."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        # At exit something may still be printed after all finalizers have run.
        weakref.finalize(self, os.close, fd).atexit = False

    def put(self, data: bytes | bytearray) -> int:
        return os.write(self._fd, data)

    def wait(self, seconds: float) -> bool:
        return bool(self._poll.poll(seconds * 1000))


class Shared:
    """A descriptor that would block and has to stay that way; a thread writes to it, piece by piece.

    A piece still under way counts as not taken: the same bytes are offered again, and their answer is given.
    """

    def __init__(self, fd: int) -> None:
        self._pieces: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: SimpleQueue[int | OSError] = SimpleQueue()
        self._under_way = False
        self._answer: int | OSError | None = None
        # A thread that can be blocked for good must not keep the process alive.
        Thread(target=_write, args=(fd, self._pieces, self._answers), name="way-out", daemon=True).start()
        weakref.finalize(self, self._pieces.put, None).atexit = False

    def put(self, data: bytes | bytearray) -> int:
        if not self._under_way:
            self._under_way = True
            self._pieces.put(bytes(data[:_PIECE]))
            self.wait(_AT_ONCE)
        if not self.wait(0):
            raise BlockingIOError
        answer, self._answer, self._under_way = self._answer, None, False
        if isinstance(answer, OSError):
            raise answer
        return answer or 0

    def wait(self, seconds: float) -> bool:
        if self._under_way and self._answer is None:
            try:
                self._answer = self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait()
            except Empty:
                return False
        return True


def _write(fd: int, pieces: SimpleQueue[bytes | None], answers: SimpleQueue[int | OSError]) -> None:
    while (piece := pieces.get()) is not None:
        try:
            answers.put(os.write(fd, piece))
        except OSError as error:
            answers.put(error)
    os.close(fd)


def way_out(stream: TextIO) -> WayOut:
    """The channel that fits what is behind the stream, bypassing Python's buffers if it is a real file.

    A Python buffer that cannot be flushed at exit would change the exit code of the process.
    """
    try:
        fd = stream.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError, AttributeError):
        return Unnumbered(stream)
    if not (os.isatty(fd) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return Descriptor(os.dup(fd))
    try:
        return Descriptor(_opened_again(fd))
    except OSError:
        return Shared(os.dup(fd))


def _opened_again(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
