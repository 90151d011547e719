"""Capture files: one record per line, readable for their owner only, sealed if somebody asked for it.

Rule 1 (D-21): the body stands there as it came. So the file is made with mode 600, and one that others can
        read, or that is a link, is refused.
Rule 2: a batch is one write at the end of the file. What could not be written whole is cut off again, and
        so is a torn line that a killed writer left behind.
Rule 3: one writer at a time: the file is locked as long as it is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Callable, Sequence
from typing import Any, Final

from chronicle.core.record import dump
from chronicle.core.sealing import Randomness, Seal, Secret, is_sealed, known_seal, new_seal
from chronicle.errors import SettingError

CHUNK: Final = 1024 * 1024


class CaptureFile:
    """A capture that is open for writing."""

    def __init__(self, descriptor: int, size: int, seal: Seal | None, randomness: Randomness) -> None:
        self._descriptor: int | None = descriptor
        self._size = size
        self._seal = seal
        self._randomness = randomness
        self.count = 0

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Append these records; raises OSError, and then none of them is in the file."""
        seal = self._seal
        lines = [dump(record) for record in records]
        try:
            self._append([line if seal is None else seal.close(line, self._randomness) for line in lines])
        except OSError:
            if seal is not None:
                seal.skip(-len(lines))
            raise
        self.count += len(records)

    def sync(self) -> None:
        """See on the disk what was written so far; raises OSError."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Say that this is all, and see it on the disk; raises OSError."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        try:
            if self._seal is not None:
                self._append([self._seal.close(b"", self._randomness)])
            os.fsync(descriptor)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the file as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def begin(self) -> None:
        """Write the first line of a new sealed file."""
        if self._seal is not None:
            self._append([self._seal.header])

    def _append(self, lines: Sequence[bytes]) -> None:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the capture is closed")
        content = memoryview(b"".join(line + b"\n" for line in lines))
        try:
            written = 0
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written


def open_capture(
    path: str,
    secret: Callable[[], Secret] | None,
    *,
    new: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    randomness: Randomness = os.urandom,
) -> CaptureFile:
    """Open a capture to append to, sealed if there is a secret; raises SettingError.

    A sealed capture that exists is gone on with if the secret opens it. With `new` it must not exist.
    """
    if new and os.path.lexists(path):
        raise _exists(path)
    # Before the file is made: who has no answer, or presses Ctrl-C instead, leaves nothing behind.
    known = secret() if secret else None
    descriptor = _opened(path, new)
    try:
        size = _mended(descriptor, path, tell)
        if size:
            seal = _same_seal(descriptor, path, known)
            return CaptureFile(descriptor, size, seal, randomness)
        file = CaptureFile(descriptor, 0, new_seal(known, randomness) if known else None, randomness)
        file.begin()
        return file
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise SettingError(f"{path} cannot be written: {error.strerror}") from None
        raise


def _exists(path: str) -> SettingError:
    return SettingError(f"{path} exists already", "name a file that does not")


def _opened(path: str, new: bool) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | (os.O_EXCL if new else 0), 0o600)
    except FileExistsError:
        raise _exists(path) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is not a usable path"
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            why = "it is a symbolic link"
        raise SettingError(f"{path} cannot be written: {why}", "name a file that can be") from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise SettingError(f"{path} is not a file", "a capture is a file on a disk")
        if facts.st_mode & 0o077:
            raise SettingError(f"others can read {path}", f"chmod 600 {shlex.quote(path)}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingError(f"another process is writing {path}", "name another file") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _mended(descriptor: int, path: str, tell: Callable[[str], None]) -> int:
    """Cut off a line that a killed writer left half written; the size of what is whole."""
    size = end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - CHUNK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
        tell(f"{path} ended with a line that was not whole, which was cut off: its writer had been stopped")
    return end


def _same_seal(descriptor: int, path: str, secret: Secret | None) -> Seal | None:
    """The seal a capture was begun with, ready for its next line; None if it is not sealed."""
    with open(descriptor, "rb", closefd=False) as file:
        header = file.readline().rstrip(b"\n")
        if not is_sealed(header):
            if secret is not None:
                raise SettingError(f"{path} exists and is not sealed", "name another file for --encrypt")
            return None
        if secret is None:
            raise SettingError(f"{path} is sealed", "give --encrypt to go on with it, or name another file")
        seal = known_seal(header, lambda _means, _name: secret, path)
        count, last = 0, b""
        for line in file:
            count, last = count + 1, line
    if count:
        seal.skip(count - 1)
        try:
            seal.open(last.rstrip(b"\n"))
        except ValueError as error:
            raise SettingError(f"{path}, line {count + 1}: {error}", "name another file") from None
    return seal
