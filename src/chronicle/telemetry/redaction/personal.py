"""Removing personal data from what syncers and exceptions say.

Rule 1 (D-21, Z5): what is not known to be harmless is personal. A value of the message that occurs in a
        text is replaced by its path, `‹contact.email›`; so are the words it is made of, and whatever looks
        like an e-mail address or a telephone number.
Rule 2: what cannot be searched is withheld: raw bodies, large messages.
Rule 3: a path shows only proca's field names; any other key may itself be a person's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from chronicle.telemetry.redaction.folding import WORD, Layer, layers
from chronicle.telemetry.redaction.needles import Needles, needles_of
from chronicle.telemetry.redaction.secrets import secrets_in_text
from chronicle.telemetry.redaction.spans import Found, cap, clean, written_over

WITHHELD: Final = "‹withheld›"
SHOWN: Final = 300
_MOST_FOLDED: Final = 4  # times the text: a single character may fold to eighteen

# Possessive and from the beginning of a word, so that each character is looked at once.
_EMAIL: Final = re.compile(
    r"(?<![^\s@<>()\[\],;:\"‹›/=&?])[^\s@<>()\[\],;:\"‹›/=&?]++@[^\s@<>()\[\],;:\"'‹›/&?]{1,255}"
)
_PHONE: Final = re.compile(
    r"(?<![\w.])(?!\d{4}-\d\d-\d\d(?!\d))(?!(?:\d{1,3}\.){3}\d{1,3}(?![\d.]))"
    r"(?:\+(?:[\s()./-]{0,2}\d){7,15}|\(?0(?:[\s()./-]{0,2}\d){8,14}|\d{9,15}"
    r"|\(?\d{3}[\s().-]{1,2}\d{3}[\s.-]\d{4}|\d{1,4}(?:[\s()./-]{1,2}\d{2,4}){3,6})(?!\w)"
)
_PATTERNS: Final = ((_EMAIL, "‹email›"), (_PHONE, "‹phone›"))


class Mask:
    """Hides what one message says about a person.

    Without a message (None) only what looks like an address or a number can be found.
    """

    def __init__(self, message: Any) -> None:
        self._needles: Needles | None = None
        if not isinstance(message, bytes | bytearray | memoryview):
            try:
                self._needles = needles_of(message)
            except Exception:  # too large, or something in it that a syncer made cannot be inspected
                self._needles = None

    @property
    def can_search(self) -> bool:
        """Whether texts about this message can be shown at all."""
        return self._needles is not None

    def __call__(self, text: str, limit: int = SHOWN) -> str:
        """The text on one line, without secrets and without what the message says about a person."""
        if self._needles is None:
            return WITHHELD if text else ""
        needles = self._needles
        try:
            told = written_over(text, lambda part: _found(part, needles), limit)
        except _UnreadableError:
            return WITHHELD
        return cap(clean(told), limit)


class _UnreadableError(Exception):
    """A text that becomes too long when it is folded."""


def mask(text: str, message: Any, limit: int = SHOWN) -> str:
    """One text about one message, masked."""
    return Mask(message)(text, limit)


def _found(text: str, needles: Needles) -> Iterator[Found]:
    """Every part of the text that is secret or says something personal."""
    yield from secrets_in_text(text)
    for layer in layers(text):
        if len(layer.text) > _MOST_FOLDED * len(text):
            raise _UnreadableError
        for start, end, label, weight in _look(layer, needles):
            yield Found(*layer.place(start, end), label, weight)


def _look(layer: Layer, needles: Needles) -> Iterator[Found]:
    text = layer.text
    for pattern, label in _PATTERNS:
        for match in pattern.finditer(text):
            yield Found(*match.span(), label)
    for start, end, label in needles.anywhere.find(text):
        yield Found(start, end, label, end - start)
    for start, end, label in needles.alone.find(text, alone=True):
        yield Found(start, end, label, end - start)
    for match in WORD.finditer(text):
        if head := needles.heads.get(match[0]):
            yield Found(*match.span(), head, len(match[0]))
    places = [at for at, sign in enumerate(text) if sign.isalnum()]
    for start, end, label in needles.squeezed.find("".join(text[at] for at in places)):
        yield Found(places[start], places[end - 1] + 1, label, end - start)
