"""The `.env` file: this folder's only, and never over what the environment already says (Z13)."""

from __future__ import annotations

import io
import os
import shlex
import stat
from collections.abc import MutableMapping
from typing import Final

from chronicle.errors import SettingError

NAME: Final = ".env"
MAX_FILE: Final = 1024 * 1024


def load_env(named: str | None, environ: MutableMapping[str, str]) -> None:
    """Add what the named file, or this folder's `.env`, says and the environment does not."""
    content = _content(named or NAME, must_exist=named is not None)
    if content is None:
        return
    # Most runs have no such file and should not pay for the import.
    from dotenv import dotenv_values

    for key, value in dotenv_values(stream=io.StringIO(content), interpolate=False).items():
        if value is not None:
            environ.setdefault(key, value)


def _content(path: str, *, must_exist: bool) -> str | None:
    try:
        # O_NONBLOCK: a named pipe without a writer would keep us here for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if must_exist:
            raise SettingError(f"there is no file {path!r}", "correct --env-file, or leave it out") from None
        return None
    except (OSError, ValueError):
        raise SettingError(f"{path!r} cannot be read", "check its mode and owner") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode) and not must_exist:
            return None  # a virtual environment is often called .env, too
        if not stat.S_ISREG(mode):
            raise SettingError(f"{path!r} is not a file", "name a file of lines NAME=value")
        if mode & stat.S_IROTH:
            problem = f"everybody can read {path!r}, and it may hold passwords"
            raise SettingError(problem, f"chmod 600 {shlex.quote(path)}")
        raw = os.read(descriptor, MAX_FILE)
    finally:
        os.close(descriptor)
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content or len(raw) == MAX_FILE:
        raise SettingError(f"{path!r} is too large or not UTF-8 text", "write it as lines NAME=value")
    return content
