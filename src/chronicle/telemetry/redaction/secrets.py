"""Removing secrets from text: passwords in URLs, values after telling names, and values known to be secret.

Rule: better to hide too much than too little. A URL is hidden from its first colon to the last `@` of its
word, because a password may contain any character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from chronicle.telemetry.redaction.known import KNOWN
from chronicle.telemetry.redaction.spans import Found, cap, clean, written_over

HIDDEN: Final = "***"
LONGEST: Final = 2_000

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
    # Each run of characters is looked at once, however often a token seems to begin in it.
    re.compile(r"(?<![\w-])(?=[\w-]*?\beyJ[\w-]{8})(?P<secret>[\w-]++\.[\w-]++\.[\w-]*)"),
    re.compile(r"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z))", re.DOTALL),
)


def redact(text: str, limit: int = LONGEST) -> str:
    """At most this much of the text, without secrets and what looks like one; user names may stay."""
    return written_over(text, secrets_in_text, limit)


def one_line(text: str, limit: int = LONGEST) -> str:
    """At most this much of the text as it may be printed: on one line, without secrets."""
    return cap(clean(redact(text, limit)), limit)


def secrets_in_text(text: str) -> Iterator[Found]:
    """Where there are secrets in a text."""
    for start, end in KNOWN.find(text):
        yield Found(start, end, HIDDEN)
    if "@" in text or "%" in text:
        yield from _userinfo(text)
    # Every pattern sees the original text: what one of them hides may be the clue another one needs.
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield Found(*match.span("secret"), HIDDEN)


def _userinfo(text: str) -> Iterator[Found]:
    for word in _WORD.finditer(text):
        for start, end in _password(word[0]):
            yield Found(word.start() + start, word.start() + end, HIDDEN)


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
