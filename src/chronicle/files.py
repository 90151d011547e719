"""Files that must be the operator's own: opened without following a link, then checked.

Rule 1 (Z8): as with ssh, a file that is a symbolic link, is not a regular file, belongs to another user, or
        is open to group or others is refused. One that is written must not have a second name either: what is
        appended would show up under both.
Rule 2: what is checked is what was opened, by its descriptor, so nobody can swap the file in between.
Rule 3: nothing waits: a named pipe is opened without blocking, and then refused.
Rule 4: an error says what is wrong and which command mends it.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from typing import Final

from chronicle.errors import OperatorError, SettingError

PRIVATE: Final = 0o600


def open_own(
    path: str,
    flags: int,
    *,
    kind: str = "",
    shown: str | None = None,
    mounted: bool = False,
    error: type[OperatorError] = SettingError,
) -> int:
    """A descriptor of this file if it can be trusted; raises `error`, and OSError or ValueError as `os.open`.

    `kind` and `shown` name it in errors. With `mounted`, what container platforms make of a secret is good
    enough: a link to root's own file, which the group may read.
    """
    name = path if shown is None else shown
    label = f"{kind} {name}".strip()
    follow = 0 if mounted else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | follow | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE)
    except OSError as failure:
        if failure.errno == errno.ELOOP:
            raise error(f"{label} is a symbolic link", "name the file itself") from None
        raise
    try:
        wrong = distrust(
            os.fstat(descriptor), label, name, mounted=mounted, written=bool(flags & os.O_ACCMODE)
        )
        if wrong:
            raise error(*wrong)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def distrust(
    facts: os.stat_result, label: str, path: str, *, mounted: bool = False, written: bool = False
) -> tuple[str, str] | None:
    """Why a file with these facts cannot be trusted, and what mends that; None if it can be."""
    user, quoted = os.geteuid(), shlex.quote(path)
    shared = mounted and facts.st_uid == 0 != user
    if not stat.S_ISREG(facts.st_mode):
        return f"{label} is not a file", "name the file itself"
    if facts.st_uid != user and not shared:
        return (
            f"{label} belongs to another user",
            f"if you trust its content, make it your own: chown {_name_of(user)} {quoted}",
        )
    if facts.st_mode & (0o037 if shared else 0o077):
        can = "write" if facts.st_mode & 0o022 else "read"
        return f"others can {can} {label}", f"chmod {'640' if shared else '600'} {quoted}"
    if written and facts.st_nlink > 1:
        return f"{label} is a hard link: it has another name as well", "name a file of its own"
    return None


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
