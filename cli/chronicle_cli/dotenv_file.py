"""The `.env` file: only this folder's, and it never overrides the environment (Z13).

Rule 1: it must be the operator's own file, as a key store must (Z8): whoever can write it chooses the syncer
        and the broker.
Rule 2: from the file only chronicle's and proca's variables reach the environment, and those the operator
        names elsewhere: others, such as SSLKEYLOGFILE, change what Python and its libraries do.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Collection, Iterator, MutableMapping
from typing import TYPE_CHECKING, Final

from chronicle.core.words import many
from chronicle.errors import SettingError
from chronicle.files import open_own
from chronicle_cli.variables import PREFIX, unknown

if TYPE_CHECKING:
    from dotenv.parser import Original

NAME: Final = ".env"
OURS: Final = (PREFIX, "PROCA_")
MAX_FILE: Final = 1024 * 1024
# What looks different may be the second line of a secret that was not quoted.
_SHOWN: Final = re.compile(r"[A-Z][\dA-Z_]{0,39}")


def load_env(
    named: str | None, environ: MutableMapping[str, str], allowed: Collection[str] = ()
) -> tuple[str, ...]:
    """Add the variables of the named file, or of this folder's `.env`, that the environment does not set.

    Chronicle's and proca's, that is, and those that are `allowed`. Returns warnings: names that look like
    chronicle's but are not, and what was left out.
    """
    path = named or NAME
    content = _content(path, must_exist=named is not None)
    if content is None:
        return ()
    values = _values(content, path)
    taken = {key: value for key, value in values.items() if key.startswith(OURS) or key in allowed}
    for key, value in taken.items():
        environ.setdefault(key, value)
    sentences = (*unknown(taken), *_left_out(values.keys() - taken.keys()))
    return tuple(f"{path}: {sentence}" for sentence in sentences)


def _left_out(names: Collection[str]) -> Iterator[str]:
    """A warning for variables that are not chronicle's: the syncer may be waiting for one of them."""
    if not names:
        return
    shown = sorted(name for name in names if _SHOWN.fullmatch(name))
    which = ", ".join(shown) or many(len(names), "variable")
    yield (
        f"ignored {which}: not chronicle's; what your syncer needs from this file, name in {PREFIX}ENV_ALLOW "
        "or with --env-allow"
    )


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
    if not must_exist and os.path.isdir(path):
        return None  # a virtual environment is often called .env, too
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        if must_exist:
            raise SettingError(f"there is no file {path!r}", "correct --env-file, or leave it out") from None
        return None
    except (OSError, ValueError):
        raise SettingError(f"{path!r} cannot be read", "check its mode and owner") from None
    with open(descriptor, "rb") as file:
        raw = file.read(MAX_FILE)
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content or len(raw) == MAX_FILE:
        raise SettingError(f"{path!r} is too large or not UTF-8 text", "write it as NAME=value lines")
    return content
