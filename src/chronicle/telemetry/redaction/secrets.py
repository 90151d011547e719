"""Removing secrets from text: passwords in URLs, values after telling names, and values known to be secret.

Rule 1: better to hide too much than too little. A URL is hidden from its first colon to the last `@` of its
        word, because a password may contain any character.
Rule 2: secrets are kept only in the `Secrets` object that the caller made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote

HIDDEN: Final = "***"

# Control, bidirectional, invisible and lone-surrogate characters: what moves a cursor, reverses a line,
# starts a new one, or cannot be written at all (Z10).
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# How `://`, `:` and `@` of a URL look: plain, with escaped slashes, percent-encoded in three ways.
_URL_SHAPES: Final = (
    ("://", ":", "@"),
    (":\\/\\/", ":", "@"),
    ("%3a//", "%3a", "%40"),
    ("%3a%2f%2f", "%3a", "%40"),
    ("%253a%252f%252f", "%253a", "%2540"),
)
_ASCII_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_WORD: Final = re.compile(r"\S+")

_NAMES: Final = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|access|private|account)[_.-]?key|credentials?"
    r"|authorization|cookie|signature)"
)
_PAIR: Final = re.compile(
    rf"""
    {_NAMES}[\w.-]{{0,40}}
    (?: \\*["']? \s{{0,8}} (?: => | [=:] | %3[ad] ) | \\*["'] \s{{0,8}} , ) \s{{0,8}}
    (?P<secret>
        b? "(?:\\.|[^"\\])*"?
      | b? '(?:\\.|[^'\\])*'?
      | (?P<bars>\\+)(?P<mark>["']) (?: (?! (?<!\\)(?P=bars)(?P=mark) ) . )*
      | (?:bearer|basic|digest|token|negotiate) \s{{1,8}} \S+
      | [^\s&]+ )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_PATTERNS: Final = (
    _PAIR,
    re.compile(r"(?:authorization|cookie)\s{0,8}[:=]\s{0,8}(?P<secret>[^\s\"'\\][^\r\n]*)", re.IGNORECASE),
    re.compile(r"\b(?:bearer|basic)\s+(?P<secret>[\w.~+/=-]{8,})", re.IGNORECASE),
    re.compile(r"(?P<secret>\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"),
    re.compile(r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z))", re.DOTALL),
)


def clean(text: str) -> str:
    """The text on one line, with everything that could control a terminal escaped."""
    return _UNPRINTABLE.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def cap(text: str, limit: int) -> str:
    """At most this many characters, with an ellipsis if there were more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def redact(text: str) -> str:
    """The text without anything that looks like a secret; user names may stay."""
    found = list(_userinfo(text)) if "@" in text or "%" in text else []
    # Every pattern sees the original text: what one of them hides may be the clue another one needs.
    for pattern in _PATTERNS:
        found.extend(match.span("secret") for match in pattern.finditer(text))
    return _hidden(text, found)


def _hidden(text: str, found: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in sorted(found):
        if start >= done:
            pieces += [text[done:start], HIDDEN]
        done = max(done, end)
    pieces.append(text[done:])
    return "".join(pieces)


def _userinfo(text: str) -> Iterator[tuple[int, int]]:
    for word in _WORD.finditer(text):
        for start, end in _password(word[0]):
            yield word.start() + start, word.start() + end


def _password(word: str) -> Iterator[tuple[int, int]]:
    """Where the password is in a URL, in every form the URL may have."""
    lower = word.translate(_ASCII_LOWER)
    for opening, colon, at in _URL_SHAPES:
        begin, end = lower.find(opening), lower.rfind(at)
        if begin < 0 or end < begin + len(opening):
            continue
        begin += len(opening)
        password = lower.find(colon, begin, end)
        if password >= 0:
            yield password + len(colon), end
        elif lower.startswith("http") and "/" not in lower[begin:end]:
            # What is alone before the @ of a web address is a token more often than a user name.
            yield begin, end


class Secrets:
    """Values known to be secret, found in text however they are written."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= 4}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if forms else None

    def hide(self, text: str) -> str:
        """The text without known secrets and without anything that looks like one."""
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        return redact(text)

    def __repr__(self) -> str:
        return "<Secrets>"


def _forms(value: str) -> set[str]:
    """A value as it appears in URLs, forms, JSON and Python's own output."""
    spellings = {value, unquote(value)}
    spellings |= {spelling.lower() for spelling in spellings} | {spelling.upper() for spelling in spellings}
    forms = set(spellings)
    for spelling in spellings:
        encodable = spelling.encode("utf-8", "replace")
        percent = {quote(encodable, safe=""), quote(encodable), quote_plus(encodable)}
        forms |= percent | {quote(form, safe="") for form in percent}
        forms |= {json.dumps(spelling)[1:-1], json.dumps(spelling, ensure_ascii=False)[1:-1]}
        forms |= {json.dumps(spelling)[1:-1].replace("/", "\\/")}
        forms |= {repr(spelling)[1:-1], ascii(spelling)[1:-1], repr(encodable)[2:-1]}
    return forms
