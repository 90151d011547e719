"""Append-only files, written one whole line at a time, shared by threads and processes.

Rule 1: `append` returns when the line is on disk (fsync). Threads waiting at the same time share one write
        and one fsync.
Rule 2: writers lock the file while they write. A failed write is undone, so a full disk leaves no partial
        line behind.
Rule 3: a partial line left by a killed writer is terminated before anything is added, and never removed.
Rule 4: the file is the operator's own: one that belongs to another user, that others can read or write, or
        that is a link, is refused (`chronicle.files`).
Rule 5: when the path refers to a different file than before (it was rotated), lines go to the new one.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chronicle.errors import SettingError
from chronicle.files import open_own

BLOCK: Final = 65536


@dataclass(slots=True, eq=False)
class _Batch:
    lines: list[bytes] = field(default_factory=list)
    done: bool = False
    error: BaseException | None = None


def end_line(_half: bytes) -> bytes:
    """Terminates a partial line in a format that needs only a newline."""
    return b"\n"


class AppendFile:
    """A file to append lines to; `head` is the first line of a new one, `mend` terminates a partial line."""

    def __init__(self, path: Path, head: bytes = b"", mend: Callable[[bytes], bytes] = end_line) -> None:
        self._path = path
        self._head = head
        self._mend = mend
        self._turn = threading.Condition()
        self._next = _Batch()
        self._writing = False
        self._closed = False
        self._file = self._open()

    def append(self, line: bytes) -> None:
        """Append one line, which ends in a newline; returns when it is on disk."""
        with self._turn:
            if self._closed:
                raise ValueError("the file is closed")
            batch = self._next
            batch.lines.append(line)
            self._turn.wait_for(lambda: batch.done or not self._writing)
            if batch.done:
                if batch.error is not None:
                    raise batch.error
                return
            # Nobody writes and this batch is not done, so it is still the next one: write it for all in it.
            self._writing = True
            self._next = _Batch()
        try:
            self._write(b"".join(batch.lines))
        except BaseException as error:
            batch.error = error
            raise
        finally:
            with self._turn:
                batch.done = True
                self._writing = False
                self._turn.notify_all()

    def close(self) -> None:
        """Close the file, unless a thread that outlived the drain is still writing."""
        with self._turn:
            if not self._closed and not self._writing:
                os.close(self._file)
            self._closed = True

    def _write(self, data: bytes) -> None:
        with self._locked() as file:
            size = os.fstat(file).st_size
            self._check_head(file, size)
            start = self._mend(self._half_line(file, size)) if self._is_torn(file, size) else b""
            try:
                _write_all(file, (start if size else self._head) + data)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)
                raise
        os.fsync(file)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        while True:
            file = self._file
            fcntl.flock(file, fcntl.LOCK_EX)
            if self._is_current(file):
                break
            fcntl.flock(file, fcntl.LOCK_UN)
            self._file = self._open()
            os.close(file)
        try:
            yield file
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        file = open_own(str(self._path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self._check_head(file, os.fstat(file).st_size)
            _sync_folder(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        return file

    def _check_head(self, file: int, size: int) -> None:
        if size and os.pread(file, len(self._head), 0) != self._head:
            raise SettingError(
                f"{self._path} begins with another header line", "name another file, or the same columns"
            )

    def _is_torn(self, file: int, size: int) -> bool:
        return size > 0 and os.pread(file, 1, size - 1) != b"\n"

    def _half_line(self, file: int, size: int) -> bytes:
        tail, start = b"", size
        while start > 0 and b"\n" not in tail:
            start = max(0, start - BLOCK)
            tail = os.pread(file, size - start, start)
        return tail.rpartition(b"\n")[2]


def open_file(
    path: Path, setting: str, head: bytes = b"", mend: Callable[[bytes], bytes] = end_line
) -> AppendFile:
    """The file that a setting names; an error names the setting."""
    try:
        return AppendFile(path, head, mend)
    except SettingError as error:
        raise SettingError(f"the file of {setting} cannot be used: {error}", error.remedy) from None
    except OSError as error:
        raise SettingError(
            f"the file of {setting} cannot be used: {error.strerror}", "name another file"
        ) from None


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: Path) -> None:
    """A new file survives a power cut only if its directory entry is on disk too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
