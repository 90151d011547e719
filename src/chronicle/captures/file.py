"""Capture files: one record per line, readable by their owner only, encrypted on request.

Rule 1 (D-21): the body is stored exactly as it came. So the file is created with mode 600, and one that
        belongs to another user, that others can read, or that is a link, is refused (`files.py`).
Rule 2: a batch is one write at the end of the file. A partial write is truncated again, and so is an
        incomplete line left behind by a killed writer.
Rule 3: a file that does not begin like a capture was named by mistake: it is refused, and stays as it is.
Rule 4: one writer at a time: the file is locked as long as it is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from chronicle.core.body import MAX_BODY, glance
from chronicle.core.encryption import (
    MAGIC,
    MAX_HEADER,
    FileCipher,
    Randomness,
    Secret,
    cipher_from_header,
    is_encrypted,
    new_cipher,
)
from chronicle.core.record import dump, is_record
from chronicle.errors import SettingError
from chronicle.files import open_own

CHUNK: Final = 1024 * 1024
STDOUT: Final = "-"
RECORD_BEGINS: Final = b'{"transport":"'


class CaptureFile:
    """A capture that is open for writing."""

    def __init__(self, descriptor: int, cipher: FileCipher | None, randomness: Randomness) -> None:
        self._descriptor: int | None = descriptor
        self._cipher = cipher
        self._randomness = randomness
        self.count = 0

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Append these records; raises OSError, and then none of them is in the file."""
        cipher = self._cipher
        lines = [dump(record) for record in records]
        if cipher is None:
            self._append(lines)
        else:
            before = cipher.before
            try:
                self._append([cipher.encrypt(line, self._randomness) for line in lines])
            except OSError:
                cipher.before = before
                raise
        self.count += len(records)

    def sync(self) -> None:
        """Flush what was written so far to disk; raises OSError."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Mark the file as complete and flush it to disk; raises OSError."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        try:
            if self._cipher is not None:
                self._append([self._cipher.encrypt(b"", self._randomness)])
            os.fsync(descriptor)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def begin(self) -> None:
        """Write the first line of a new encrypted file."""
        if self._cipher is not None:
            self._append([self._cipher.header])

    def _append(self, lines: Sequence[bytes]) -> None:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the capture is closed")
        content = memoryview(b"".join(line + b"\n" for line in lines))
        size = os.fstat(self._descriptor).st_size  # somebody may have made it shorter meanwhile
        try:
            written = 0
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


def open_capture(
    path: str,
    secret: Callable[[], Secret] | None,
    *,
    new: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    randomness: Randomness = os.urandom,
) -> CaptureFile:
    """Open a capture to append to, encrypted if there is a secret; raises SettingError.

    An existing encrypted capture is continued if the secret decrypts it. With `new` it must not exist, and
    does not afterwards if its first line cannot be written.
    """
    refuse_stdout(path)
    if new and os.path.lexists(path):
        raise _exists(path)
    # Before the file is created, so that an unanswered prompt or Ctrl-C leaves nothing behind.
    known = secret() if secret else None
    descriptor = _opened(path, new)
    try:
        size = os.fstat(descriptor).st_size
        end = _after_newline(descriptor, size)
        if size and not _is_capture(descriptor, size, end):
            raise _no_capture(path)
        cipher = _same_cipher(descriptor, path, end, known) if end else None
        if end < size:
            os.ftruncate(descriptor, end)
            tell(f"{path} ended with an incomplete line, which was removed: its writer had been stopped")
        if end:
            return CaptureFile(descriptor, cipher, randomness)
        file = CaptureFile(descriptor, new_cipher(known, randomness) if known else None, randomness)
        file.begin()
        return file
    except BaseException as error:
        os.close(descriptor)
        if new:
            with suppress(OSError):
                os.unlink(path)
        if isinstance(error, OSError):
            raise SettingError(f"{path} cannot be written: {error.strerror}") from None
        raise


def refuse_stdout(path: str) -> None:
    """SettingError for `-`: a file of that name is never what was meant."""
    if path == STDOUT:
        raise SettingError(
            "records cannot be written to standard output here",
            f"name a file; ./{STDOUT} is one of that name",
        )


def _exists(path: str) -> SettingError:
    return SettingError(f"{path} already exists", "name a file that does not")


def _no_capture(path: str) -> SettingError:
    return SettingError(f"{path} exists and is not a capture", "name another file; this one is as it was")


def _opened(path: str, new: bool) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
    try:
        descriptor = open_own(path, flags)
    except FileExistsError:
        raise _exists(path) from None
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or "it is not a usable path"
        raise SettingError(f"{path} cannot be written: {why}", "name one that can be written") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise SettingError(f"another process is writing {path}", "name another file") from None
        raise
    return descriptor


def _is_capture(descriptor: int, size: int, end: int) -> bool:
    """Whether a file begins like a capture; its last whole line ends at `end`.

    Without one, it may be the beginning of a line of ours, but no more than that: JSON that is complete is
    none that a killed writer left behind.
    """
    line = _line_from(descriptor, 0, end or size)
    if end:
        return is_encrypted(line) or _is_record(line)
    return any(line.startswith(known[: len(line)]) for known in (RECORD_BEGINS, MAGIC)) and not glance(line)


def _is_record(line: bytes) -> bool:
    """Whether a line is a record; one that is very long only has to begin like one."""
    return line.startswith(RECORD_BEGINS) if len(line) > MAX_BODY else is_record(glance(line))


def _line_from(descriptor: int, start: int, end: int) -> bytes:
    """The line that starts here, without its newline, or the beginning of a very long one."""
    line = b""
    while start + len(line) < end and len(line) <= MAX_BODY:
        most = min(CHUNK, end - start - len(line))
        part, newline, _ = os.pread(descriptor, most, start + len(line)).partition(b"\n")
        line += part
        if newline or not part:
            break
    return line


def _after_newline(descriptor: int, end: int) -> int:
    """Where the last newline before `end` ends; 0 if there is none."""
    while end:
        start = max(0, end - CHUNK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _same_cipher(descriptor: int, path: str, size: int, secret: Secret | None) -> FileCipher | None:
    """The cipher a capture was started with, ready for its next line; None if it is not encrypted.

    Only the first two lines and the last two are read, however long the file has become.
    """
    header = os.pread(descriptor, min(size, MAX_HEADER + 1), 0).partition(b"\n")[0]
    if not is_encrypted(header):
        if secret is not None:
            raise SettingError(
                f"{path} exists and is not encrypted",
                "name another file; to continue it as it is, add --no-encrypt",
            )
        return None
    if secret is None:
        raise SettingError(f"{path} is encrypted", "add --encrypt to continue it, or name another file")
    cipher = cipher_from_header(header, lambda _kind, _name: secret, path)
    first = len(header) + 1  # where the line after the header starts
    if size > first:
        last, start = _line_before(descriptor, size)
        before = _line_before(descriptor, start)[0] if start > first else None
        try:
            cipher.resume(last, before)
        except ValueError as error:
            raise SettingError(f"{path}, its last line: {error}", "name another file") from None
        if not _begins_with_record(cipher, _line_from(descriptor, first, size)):
            raise _no_capture(path)
    return cipher


def _begins_with_record(cipher: FileCipher, line: bytes) -> bool:
    """Whether an encrypted file begins with a record, as far as can be told; a key store does not."""
    before, cipher.before = cipher.before, b""
    try:
        content = cipher.decrypt(line)
    except ValueError:  # it is damaged, which whoever reads it is told, or very long
        return True
    finally:
        cipher.before = before
    return not content or _is_record(content)


def _line_before(descriptor: int, end: int) -> tuple[bytes, int]:
    """The line that ends here, without its newline, and where it starts."""
    start = _after_newline(descriptor, end - 1)
    return os.pread(descriptor, end - 1 - start, start), start
