"""Who holds messages of a queue file: one locked file for every open transport.

Rule 1: a holder creates and locks its file before it claims its first message. So a file that another process
        can lock, or that is gone, is a dead holder's, and what it held is free.
Rule 2: the kernel keeps the lock as long as the process lives, stopped or not, and drops it at kill -9.
        There is no clock and no heartbeat to go wrong.
Rule 3: a token is used once. Whoever buries a dead holder keeps its file locked until its messages are
        free and the file is gone, so a holder that is just starting notices and takes another token.
Rule 4: a file that this user may not open says nothing, so its holder counts as alive.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

TOKEN: Final = re.compile(r"\d+-[0-9a-f]{16}")
BIRTHS: Final = 100  # tries to create a lock file; each failed one was taken for dead by another process

_held: set[int] = set()


def _forget_in_child() -> None:
    """A forked child would keep its parent's locks alive after the parent was killed."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class Owner:
    """One holder of messages, alive as long as its lock file is locked."""

    def __init__(self, folder: Path) -> None:
        """Create and lock the file; raises OSError if that is not possible."""
        self._folder = folder
        for _ in range(BIRTHS):
            self.token = f"{os.getpid()}-{secrets.token_hex(8)}"
            fd = _born(folder, self.token)
            if fd is not None:
                self._fd = fd
                _held.add(fd)
                return
        raise OSError(f"no lock file could be kept in {folder.name}")

    @property
    def valid(self) -> bool:
        """Whether the lock file is still there: without it, others take this holder for dead."""
        return _is_at(self._fd, self._folder / self.token)

    def leave(self) -> None:
        """Remove the lock file; the folder too when this was the last one."""
        if self._fd not in _held:
            return  # already left, or this is a forked copy and the holder lives on in the parent
        with suppress(OSError):
            os.unlink(self._folder / self.token)
        self.drop()
        with suppress(OSError):
            os.rmdir(self._folder)

    def drop(self) -> None:
        """Release the lock and leave the file, as a killed process does."""
        _held.discard(self._fd)
        os.close(self._fd)
        self._fd = -1


def tokens(folder: Path) -> Iterator[str]:
    """All holders that have a lock file, dead or alive."""
    with suppress(FileNotFoundError):
        yield from filter(TOKEN.fullmatch, os.listdir(folder))


def bury(folder: Path, token: str, release: Callable[[str], None]) -> bool:
    """Release what this holder holds, if it is dead, and remove its lock file; False if nobody may tell."""
    # A token we did not create is not used as a file name: it must not lead out of the folder.
    path = folder / token if TOKEN.fullmatch(token) else None
    try:
        fd = None if path is None else os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        fd = None
    except PermissionError:
        return False
    if fd is None:
        release(token)
        return True
    assert path is not None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        release(token)
        with suppress(FileNotFoundError):
            os.unlink(path)
    except BlockingIOError:
        pass  # alive
    finally:
        os.close(fd)
    return True


def _born(folder: Path, token: str) -> int | None:
    """A new lock file, locked; None if another process got in between."""
    path = folder / token
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # the last holder to leave took the folder with it
    kept = False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept = _is_at(fd, path)
    except BlockingIOError:
        pass
    finally:
        if not kept:
            os.close(fd)
    return fd if kept else None


def _is_at(fd: int, path: Path) -> bool:
    """Whether the open file is still the one that has this name."""
    try:
        named, opened = os.stat(path), os.fstat(fd)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
