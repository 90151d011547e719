"""The `.env` file: only this folder's, and it never overrides the environment (Z13)."""

from __future__ import annotations

import io
import os
import shlex
import stat
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from chronicle.errors import SettingError
from chronicle_cli.variables import unknown

if TYPE_CHECKING:
    from dotenv.parser import Original

NAME: Final = ".env"
MAX_FILE: Final = 1024 * 1024


def load_env(named: str | None, environ: MutableMapping[str, str]) -> tuple[str, ...]:
    """Add the variables of the named file, or of this folder's `.env`, that the environment does not set.

    Returns warnings: names that look like chronicle's but are not.
    """
    path = named or NAME
    content = _content(path, must_exist=named is not None)
    if content is None:
        return ()
    values = _values(content, path)
    for key, value in values.items():
        environ.setdefault(key, value)
    return tuple(f"{path}: {sentence}" for sentence in unknown(values))


def _values(content: str, path: str) -> dict[str, str]:
    """The variables as written, without interpolation; if one is repeated, the last wins."""
    # Most runs have no such file and should not pay for the import.
    from dotenv.parser import parse_stream

    values = {}
    for found in parse_stream(io.StringIO(content)):
        if found.error:
            # The line itself may contain a password.
            raise SettingError(
                f"{path!r}, line {_line(found.original)} cannot be read", "write it as NAME=value"
            )
        if found.key is not None and found.value is not None:
            values[found.key] = found.value
    return values


def _line(original: Original) -> int:
    """The line a binding starts on; the parser counts from the blank lines before it."""
    blank = len(original.string) - len(original.string.lstrip())
    return original.line + original.string[:blank].count("\n")


def _content(path: str, *, must_exist: bool) -> str | None:
    try:
        # O_NONBLOCK: a named pipe without a writer would block forever.
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
            raise SettingError(f"{path!r} is not a file", "name a file of NAME=value lines")
        if mode & stat.S_IROTH:
            problem = f"{path!r} is world-readable, and it may contain passwords"
            raise SettingError(problem, f"chmod 600 {shlex.quote(path)}")
        raw = os.read(descriptor, MAX_FILE)
    finally:
        os.close(descriptor)
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content or len(raw) == MAX_FILE:
        raise SettingError(f"{path!r} is too large or not UTF-8 text", "write it as NAME=value lines")
    return content
