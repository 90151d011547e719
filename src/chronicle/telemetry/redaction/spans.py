"""Writing labels over the parts of a text that must not be shown.

Rule: a text is capped before it is looked through, never after. Of a text that was capped the last quarter is
looked through and not shown, because something may begin there that can no longer be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

_LOOKED_AT: Final = 4  # times what is shown: what is written over may have been long
_SHOWN: Final = 3

# Control, bidirectional, invisible and lone-surrogate characters: what moves a cursor, reverses a line,
# starts a new one, or cannot be written at all (Z10).
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SHORT_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Found(NamedTuple):
    """A part of a text, and what to write instead; of parts that overlap, the weightiest names them all."""

    start: int
    end: int
    label: str
    weight: int = 0


Find: TypeAlias = Callable[[str], Iterable[Found]]


def clean(text: str) -> str:
    """The text on one line, with everything that could control a terminal escaped."""
    return _UNPRINTABLE.sub(_written_out, text)


def clean_json(text: str) -> str:
    """JSON that means the same, with everything that could control a terminal escaped."""
    return _UNPRINTABLE.sub(_as_units, text)


def cap(text: str, limit: int) -> str:
    """At most this many characters, with an ellipsis if there were more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def written_over(text: str, find: Find, limit: int) -> str:
    """At most this many characters of a text, with labels over what is found in it."""
    looked_at = text[: _LOOKED_AT * limit]
    if len(looked_at) == len(text):
        return cap(_cut(text, find(text), len(text)), limit)
    return cap(_cut(looked_at, find(looked_at), _SHOWN * limit) + "…", limit)


def _cut(text: str, found: Iterable[Found], until: int) -> str:
    pieces: list[str] = []
    end = weight = 0
    label = ""
    for part in sorted(found):
        if part.start >= until:
            break
        if part.start < end:
            end = max(end, part.end)
            if part.weight > weight:
                weight, label = part.weight, part.label
            continue
        if end:
            pieces.append(label)
        pieces.append(text[end : part.start])
        _, end, label, weight = part
    if end:
        pieces.append(label)
    pieces.append(text[end:until])
    return "".join(pieces)


def _written_out(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT_ESCAPES.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def _as_units(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
