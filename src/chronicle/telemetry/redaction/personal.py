"""Removing personal data from what syncers and exceptions say.

Rule 1 (D-21, Z5): what is not known to be harmless is personal. A value of the message that occurs in a
        text is replaced by its path, `‹contact.email›`; so are the words it is made of, and whatever looks
        like an e-mail address or a telephone number.
Rule 2: what cannot be searched is withheld: raw bodies, huge messages, huge texts.
Rule 3: a path shows only proca's field names; any other key may itself be a person's name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from chronicle.telemetry.redaction.fields import EVERYDAY, FIELDS, HARMLESS, PROPER
from chronicle.telemetry.redaction.folding import WORD, Layer, fold, layers, squeeze
from chronicle.telemetry.redaction.secrets import cap, clean, redact

WITHHELD: Final = "‹withheld›"
_LONGEST_TEXT: Final = 20_000
_MOST_LEAVES: Final = 5_000
_MOST_SIGNS: Final = 100_000

Path: TypeAlias = tuple[str, ...]

_EMAIL: Final = re.compile(r"[^\s@<>()\[\],;:\"‹›/=&?]{1,128}@[^\s@<>()\[\],;:\"'‹›/&?]{1,255}")
_PHONE: Final = re.compile(
    r"(?<![\w.])(?!\d{4}-\d\d-\d\d(?!\d))(?!(?:\d{1,3}\.){3}\d{1,3}(?![\d.]))"
    r"(?:\+(?:[\s()./-]{0,2}\d){7,15}|\(?0(?:[\s()./-]{0,2}\d){8,14}|\d{9,15}"
    r"|\(?\d{3}[\s().-]{1,2}\d{3}[\s.-]\d{4}|\d{1,4}(?:[\s()./-]{1,2}\d{2,4}){3,6})(?!\w)"
)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")


@dataclass(slots=True)
class _Needles:
    """What to look for, folded, with the path it came from."""

    anywhere: dict[str, Path] = field(default_factory=dict)
    alone: dict[str, Path] = field(default_factory=dict)
    squeezed: dict[str, Path] = field(default_factory=dict)
    words: dict[str, Path] = field(default_factory=dict)


def mask(text: str, message: Any, limit: int = 300) -> str:
    """The text on one line, without secrets and without what the message says about a person.

    Without a message (None) only what looks like an address or a number can be found.
    """
    if isinstance(message, bytes | bytearray | memoryview):
        return WITHHELD if text else ""
    needles = _needles(message)
    if needles is None or len(text) > _LONGEST_TEXT:
        return WITHHELD
    text = redact(text)
    found: list[tuple[int, int, str]] = []
    for layer in layers(text):
        found.extend(_look(layer, needles))
    return cap(clean(_cut(text, found)), limit)


def _look(layer: Layer, needles: _Needles) -> Iterable[tuple[int, int, str]]:
    """Every span of the text that says something personal, with what to write instead."""
    for pattern, label in ((_EMAIL, "email"), (_PHONE, "phone")):
        for _, (start, end) in layer.matches(pattern):
            yield start, end, label
    for needle, path in needles.anywhere.items():
        for start, end in layer.find(needle):
            yield start, end, _shown(path)
    for needle, path in needles.alone.items():
        for start, end in layer.find_alone(needle):
            yield start, end, _shown(path)
    squeezed = layer.squeezed() if needles.squeezed else None
    for needle, path in needles.squeezed.items():
        assert squeezed is not None
        for start, end in squeezed.find(needle):
            yield start, end, _shown(path)
    # Other code truncates values before quoting them: the beginning of a word counts as the word.
    in_order = sorted(needles.words)
    for word, (start, end) in layer.matches(WORD):
        at = bisect_left(in_order, word)
        if len(word) >= 4 and at < len(in_order) and in_order[at].startswith(word):
            yield start, end, _shown(needles.words[in_order[at]])


def _cut(text: str, found: list[tuple[int, int, str]]) -> str:
    """Write labels over the spans; where spans overlap, the longest gives its label to all of them."""
    pieces: list[str] = []
    done = 0
    start = end = widest = 0
    label = ""
    for next_start, next_end, next_label in [*sorted(found), (len(text) + 1, len(text) + 1, "")]:
        if next_start >= end:
            if end:
                pieces += [text[done:start], f"‹{label}›"]
                done = end
            start, end, widest, label = next_start, next_end, next_end - next_start, next_label
        else:
            end = max(end, next_end)
            if next_end - next_start > widest:
                widest, label = next_end - next_start, next_label
    pieces.append(text[done:])
    return "".join(pieces)


def _needles(message: Any) -> _Needles | None:
    """All that a text must not contain; None if the message is too large to search."""
    of_proca = isinstance(message, Mapping) and str(message.get("schema", "")).startswith("proca:")
    leaves: list[tuple[str, Path]] = []
    common = set(EVERYDAY)
    waiting: list[tuple[Path, Any]] = [((), message)]
    seen = signs = 0
    while waiting:
        path, value = waiting.pop()
        seen += 1
        if isinstance(value, Mapping):
            for key, inner in value.items():
                waiting.append(((*path, str(key)), inner))
                if not _PLAIN_KEY.fullmatch(str(key)):
                    waiting.append(((*path, "*"), str(key)))
        elif isinstance(value, list | tuple | set | frozenset):
            waiting.extend((path, inner) for inner in value)
        elif isinstance(value, bytes | bytearray):
            waiting.append((path, value.decode("utf-8", "replace")))
        elif of_proca and _harmless(path, value):
            common.update(WORD.findall(fold(_leaf(value))))
        elif leaf := _leaf(value):
            signs += len(leaf)
            leaves.append((leaf, path))
        # A syncer may have put anything into the message, even the message itself.
        if seen + len(waiting) > _MOST_LEAVES or signs > _MOST_SIGNS:
            return None
    needles = _Needles()
    for leaf, path in leaves:
        _add(needles, leaf, path, common)
    return needles


def _harmless(path: Path, value: Any) -> bool:
    if path[-1:] in (("area",), ("country",)):
        return isinstance(value, str) and _COUNTRY.fullmatch(value) is not None
    return path in HARMLESS


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None or not isinstance(value, int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > 4096:
        return ""  # Python refuses to format it, so it is in no text either
    number = str(value)
    return number if sum(map(str.isdigit, number)) >= 5 else ""


def _add(needles: _Needles, leaf: str, path: Path, common: AbstractSet[str]) -> None:
    """Add a value and its words; common ones only if they are in a proper field."""
    proper = not PROPER.isdisjoint(path)
    whole = fold(leaf).strip()
    if len(whole) < 2 or (whole in common and not proper):
        return
    (needles.anywhere if _telling(whole) else needles.alone).setdefault(whole, path)
    bare = squeeze(whole)
    if len(bare) >= (6 if any(map(str.isdigit, bare)) else 8):
        needles.squeezed.setdefault(bare, path)
    for word in WORD.findall(whole):
        if word in common and not proper:
            continue
        if _telling(word):
            needles.anywhere.setdefault(word, path)
            needles.words.setdefault(word, path)
        elif proper and len(word) > 1 and not word.isdigit() and "@" not in whole:
            needles.alone.setdefault(word, path)


def _telling(word: str) -> bool:
    """Long enough to be searched for inside other words; scripts without spaces have short names."""
    return len(word) >= 4 or (len(word) >= 2 and not word.isascii())


def _shown(path: Path) -> str:
    return ".".join(part if part in FIELDS else "*" for part in path) or "message"
