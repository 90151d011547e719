"""The secrets this process has read, so that no text it prints contains one.

Rule 1: there is one list for the whole process, because whoever prints must know what anybody has read. It
        only grows, and what is in it can be looked for, not read.
Rule 2: a secret is found however it is written: percent-encoded, in JSON, in Python's own output, in hex, and
        inside base64 wherever it begins, so also in that of `user:password`.
Rule 3: what is shorter than four characters cannot be hidden: it is part of too many words.
"""

from __future__ import annotations

import json
import os
import re
import stat
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from chronicle.core.urls import split_url

_SHORTEST: Final = 4
_LARGEST_FILE: Final = 64 * 1024
_MOST_LINES: Final = 100
_NAME: Final = re.compile("PASS|TOKEN|SECRET|KEY|CRED|AUTH|URL|DSN", re.IGNORECASE)
_SURE: Final = re.compile("PASS|TOKEN|SECRET", re.IGNORECASE)
# Names that sound like a secret's and may hold any word; a shorter value is no secret.
_SHORTEST_UNSURE: Final = 8
# Variables of ours that sound like secrets and are names: files, fields, routing keys, brokers' addresses,
# which are shown without their passwords.
_NAMES_ONLY: Final = frozenset((
    "CHRONICLE_URL", "CHRONICLE_MANAGEMENT_URL", "PROCA_URL", "CHRONICLE_KEYS", "CHRONICLE_KEYS_MESSAGE",
    "CHRONICLE_TLS_KEY", "CHRONICLE_KEY", "CHRONICLE_ROUTING_KEY", "CHRONICLE_DEAD_LETTER_ROUTING_KEY",
))  # fmt: skip


class Known:
    """Values that are looked for in texts, in every way they may be written."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forms: tuple[str, ...] = ()

    def add(self, *values: str | bytes) -> None:
        """From now on these are hidden."""
        forms = {_even(form) for value in values for form in _forms(value)}
        with self._lock:
            self._forms = tuple({*self._forms, *(form for form in forms if len(form) >= _SHORTEST)})

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where they are in a text."""
        even = _even(text)
        for form in self._forms:
            at = even.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = even.find(form, at + len(form))

    def __repr__(self) -> str:
        return "<Known>"


KNOWN: Final = Known()


def passwords_in(url: str) -> Iterator[str]:
    """The password in a URL, which must never be logged (Z4)."""
    login = split_url(url).login
    # One with an unescaped / or ? in it reaches beyond where the hosts seem to begin.
    beyond = url.partition("//")[2].rpartition("@")[0]
    for password in {login.partition(":")[2], beyond.partition(":")[2]} - {""}:
        yield unquote(password)


def secrets_in(environ: Mapping[str, str]) -> Iterator[str]:
    """The secrets in these variables and in the files they name, judged by the names of the variables."""
    for name, value in environ.items():
        if not value or not _NAME.search(name):
            continue
        if name.upper().endswith("_FILE"):
            yield from _secrets(name[: -len("_FILE")], _content(value))
        elif not os.path.exists(value):
            yield from _secrets(name, value)


def _secrets(name: str, value: str) -> Iterator[str]:
    yield from passwords_in(value)
    if value.lstrip().startswith("{"):  # a key store: its public keys may be shown
        with suppress(ValueError, RecursionError):
            yield from filter(_is_long, _texts(json.loads(value)))
            return
    if name.upper() in _NAMES_ONLY:
        return
    if _is_long(value) or (value and _SURE.search(name)):
        yield value
        if "\n" in value:  # a private key may be quoted line by line
            yield from filter(_is_long, value.splitlines()[:_MOST_LINES])


def _is_long(value: str) -> bool:
    return len(value) >= _SHORTEST_UNSURE


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _content(path: str) -> str:
    """What is in a small file; empty if it cannot be read, which whoever needs it will report."""
    try:
        # O_NONBLOCK: a named pipe without a writer would block forever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(_LARGEST_FILE).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return ""


def _even(text: str) -> str:
    """Lower case, character by character, so that places in it are places in the text."""
    return text.lower() if text.isascii() else "".join(map(_even_sign, text))


def _even_sign(sign: str) -> str:
    lower = sign.lower()
    return lower if len(lower) == 1 else sign


def _forms(value: str | bytes) -> set[str]:
    """A value as it appears in URLs, forms, JSON, base64 and Python's own output."""
    if isinstance(value, bytes):
        return _of_bytes(value)
    spellings = {value, unquote(value)}
    spellings |= {spelling.lower() for spelling in spellings} | {spelling.upper() for spelling in spellings}
    forms = set(spellings)
    for spelling in spellings:
        encodable = spelling.encode("utf-8", "replace")
        percent = {quote(encodable, safe=""), quote(encodable), quote_plus(encodable)}
        forms |= percent | {quote(form, safe="") for form in percent} | _of_bytes(encodable)
        forms |= {json.dumps(spelling)[1:-1], json.dumps(spelling, ensure_ascii=False)[1:-1]}
        forms |= {json.dumps(spelling)[1:-1].replace("/", "\\/")}
        forms |= {repr(spelling)[1:-1], ascii(spelling)[1:-1]}
    return forms


def _of_bytes(raw: bytes) -> set[str]:
    if len(raw) < _SHORTEST:
        return set()
    return {repr(raw)[2:-1], raw.hex(), *_in_base64(raw)}


def _in_base64(raw: bytes) -> Iterable[str]:
    """The characters that stand for these bytes in any base64 that contains them."""
    for shift in range(3):
        begin, end = -(-8 * shift // 6), 8 * (shift + len(raw)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(shift) + raw).decode()[begin:end]
