"""The broker's URL from the environment: chronicle's own variables, then proca's.

Rule 1: `--url` and CHRONICLE_URL win, then CHRONICLE_URL_FILE, then PROCA_URL with PROCA_USERNAME and
        PROCA_PASSWORD; with none of them it is the default, a queue in this folder.
Rule 2: a password comes from the environment or a file (Z3) and completes a URL with a user and no password.
Rule 3: the environment is passed in; nothing here prints, and no error repeats a value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from chronicle.core.urls import join_login, split_url
from chronicle.errors import SettingError
from chronicle.transports.catalog import usual_url

PROCA: Final = "amqps://api.proca.app/proca_live"
MAX_FILE: Final = 64 * 1024
PASSPHRASE: Final = "CHRONICLE_PASSPHRASE"

# Variables without an option of their own, because every user of the machine can read a command line (Z3).
VARIABLES: Final = (
    "CHRONICLE_URL_FILE",
    "CHRONICLE_PASSWORD",
    "CHRONICLE_PASSWORD_FILE",
    "PROCA_URL",
    "PROCA_USERNAME",
    "PROCA_PASSWORD",
)


def resolve_url(given: str | None, environ: Mapping[str, str]) -> str:
    """The URL to use, with its password; `given` is the value of --url or CHRONICLE_URL."""
    url = given or line_in_file_of("CHRONICLE_URL_FILE", environ) or _proca(environ) or usual_url()
    password = environ.get("CHRONICLE_PASSWORD") or line_in_file_of("CHRONICLE_PASSWORD_FILE", environ)
    return with_password(url, password) if password else url


def with_password(url: str, password: str) -> str:
    """The URL with this password, if it has a user and no password."""
    user, has = _userinfo(url)
    if not user or has:
        return url
    return join_login(url, f"{user}:{quote(password, safe='')}")


def has_password(url: str) -> bool:
    """Whether the URL itself contains a password."""
    return _userinfo(url)[1]


def _userinfo(url: str) -> tuple[str, bool]:
    """User (as written) and whether there is a password."""
    user, _, password = split_url(url).login.partition(":")
    return user, bool(password)


def _proca(environ: Mapping[str, str]) -> str | None:
    """proca's own variables as one URL."""
    url, user, password = (
        environ.get(name) or "" for name in ("PROCA_URL", "PROCA_USERNAME", "PROCA_PASSWORD")
    )
    if not url and not user:
        return None
    if not url and not password:
        raise SettingError("PROCA_USERNAME without PROCA_PASSWORD", "set both, or PROCA_URL")
    url = url or PROCA
    named, complete = _userinfo(url)
    if complete or not split_url(url).hosts:
        return url
    if user and named and unquote(named) != user:
        raise SettingError("PROCA_URL and PROCA_USERNAME name two users", "leave one of them out")
    if password and not user and not named:
        raise SettingError(
            "PROCA_PASSWORD without a user name", "write the user into PROCA_URL, or set PROCA_USERNAME"
        )
    if user and not named:
        url = join_login(url, quote(user, safe=""))
    return with_password(url, password) if password else url


def line_in_file_of(name: str, environ: Mapping[str, str]) -> str | None:
    """The one line of the file a variable names; None when the variable is not set."""
    path = environ.get(name)
    if not path:
        return None
    try:
        # O_NONBLOCK: a named pipe without a writer would block forever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read(MAX_FILE + 1).decode("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingError(
            f"the file that {name} names cannot be read: {why}", "check its path and mode"
        ) from None
    if not content or len(content) > MAX_FILE or not content.isprintable():
        raise SettingError(
            f"the file that {name} names must contain exactly one line", "remove everything else"
        )
    return content
