"""Output channels that accept what fits now and never wait for a reader.

Rule 1: O_NONBLOCK belongs to the open file, which a shell or a child may share: a terminal or a pipe is
        opened a second time, so that the flag is ours alone.
Rule 2: where that is not allowed (a terminal of another user, a socket) a write follows a poll, and is so
        small that it fits whenever the poll says yes.
"""

from __future__ import annotations

import os
import select
import stat
import weakref
from typing import Final, Protocol, TextIO

# What a pipe or a socket accepts without blocking once it is ready; a terminal only promises a little room.
_PIECE: Final = select.PIPE_BUF
_TERMINAL_PIECE: Final = 128


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


class Shared(Descriptor):
    """A descriptor that would block and has to stay that way: small pieces, each after a poll."""

    def __init__(self, fd: int, piece: int) -> None:
        super().__init__(fd)
        self._piece = piece

    def put(self, data: bytes | bytearray) -> int:
        if not self.wait(0):
            raise BlockingIOError
        return super().put(data[: self._piece])


def way_out(stream: TextIO) -> WayOut:
    """The channel that fits what is behind the stream, bypassing Python's buffers if it is a real file.

    A Python buffer that cannot be flushed at exit would change the exit code of the process.
    """
    try:
        fd = stream.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError, AttributeError):
        return Unnumbered(stream)
    terminal = os.isatty(fd)
    if not (terminal or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return Descriptor(os.dup(fd))
    try:
        return Descriptor(_opened_again(fd))
    except OSError:
        return Shared(os.dup(fd), _TERMINAL_PIECE if terminal else _PIECE)


def _opened_again(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
