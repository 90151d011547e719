"""Looking for a person's words in a text, however they are written there.

A text is searched in layers: as it is, and with percent-encoding, JSON and Python escapes and entities
decoded, once and twice. A layer is folded (no case, no accents) and remembers for each of its characters
where in the text it came from, so that what is found can be cut out of the text itself.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from chronicle.core.frozen import frozen

Span: TypeAlias = tuple[int, int]

WORD: Final = re.compile(r"[^\W_]+")
_DEPTH: Final = 3
_ESCAPE: Final = re.compile(
    r"""
      (?P<percent> (?: % [0-9a-f]{2} )+ )
    | (?P<bytes>   (?: \\x [0-9a-f]{2} )+ )
    | (?P<wide>    \\U 000 [0-9a-f]{5} (?![0-9a-f]) )
    | (?P<units>   (?: \\u [0-9a-f]{4} )+ )
    | (?P<entity>  & (?: \# \d{1,7} | \# x [0-9a-f]{1,6} | [a-z]{2,8} ) ; )
    | (?P<single>  \\ . )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_UNSEEN: Final = frozenset(("Mn", "Mc", "Me", "Cf"))  # accents, and what has no width at all
_SINGLES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


@frozen
class Layer:
    """One reading of a text: folded characters, and the span of the text each came from."""

    text: str
    spans: tuple[Span, ...]

    def place(self, start: int, end: int) -> Span:
        """Where in the text these characters came from."""
        return self.spans[start][0], self.spans[end - 1][1]


def layers(text: str) -> list[Layer]:
    """The readings of a text, the plain one first."""
    spans = tuple((at, at + 1) for at in range(len(text)))
    readings = []
    for _ in range(_DEPTH):
        readings.append(_folded(text, spans))
        plain, plain_spans = _unescaped(text, spans)
        if plain == text:
            break
        text, spans = plain, plain_spans
    return readings


def fold(text: str) -> str:
    """The text without case and accents; characters fold one by one, so parts fold like the whole."""
    return text.lower() if text.isascii() else "".join(map(_fold_sign, text))


def squeeze(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@lru_cache(maxsize=4096)
def _fold_sign(sign: str) -> str:
    # Via upper case: the dotless i and the like become the ordinary letter.
    apart = unicodedata.normalize("NFKD", sign.upper().casefold())
    return "".join(part for part in apart if unicodedata.category(part) not in _UNSEEN).casefold()


def _folded(text: str, spans: tuple[Span, ...]) -> Layer:
    if text.isascii():
        return Layer(text.lower(), spans)
    signs: list[str] = []
    places: list[Span] = []
    for sign, span in zip(text, spans, strict=True):
        for part in _fold_sign(sign):
            signs.append(part)
            places.append(span)
    return Layer("".join(signs), tuple(places))


def _unescaped(text: str, spans: tuple[Span, ...]) -> tuple[str, tuple[Span, ...]]:
    pieces: list[str] = []
    places: list[Span] = []
    done = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        pieces.append(text[done:start])
        places.extend(spans[done:start])
        plain = _plain(match)
        pieces.append(plain)
        places.extend([(spans[start][0], spans[end - 1][1])] * len(plain))
        done = end
    pieces.append(text[done:])
    places.extend(spans[done:])
    return "".join(pieces), tuple(places)


def _plain(match: re.Match[str]) -> str:
    piece = match[0]
    match match.lastgroup:
        case "percent":
            return _decoded(unquote_to_bytes(piece))
        case "bytes":
            return _decoded(bytes.fromhex(piece.lower().replace("\\x", "")))
        case "wide":
            return chr(min(int(piece[2:], 16), 0x10FFFF))
        case "units":
            units = bytes.fromhex(piece.lower().replace("\\u", ""))
            return units.decode("utf-16-be", "replace")
        case "entity":
            from html import unescape  # its table of names is large, and rarely needed

            return unescape(piece.lower())
        case _:
            return _SINGLES.get(piece[1], piece[1])


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
