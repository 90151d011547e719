"""What a text about a message must not contain.

Rule 1: work and memory are linear in the message and have a budget; for a message beyond it nothing is looked
        for. A producer chooses the message, so nothing here may grow faster than the message does.
Rule 2: nothing longer than `LONGEST` is looked for. Of a longer value, every `GRAM` letters and digits in a
        row are, so that a part of it is found too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from chronicle.core.frozen import frozen
from chronicle.telemetry.redaction.fields import EVERYDAY, FIELDS, HARMLESS, PROPER
from chronicle.telemetry.redaction.folding import WORD, fold, squeeze

Path: TypeAlias = tuple[str, ...]

BUDGET: Final = 32_768  # one for each value and container, one for each byte of what is looked for
DEEPEST: Final = 8  # parts of a path that are kept: a producer may nest two hundred
LONGEST: Final = 16
GRAM: Final = 8

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
_COUNTRY: Final = re.compile(r"[A-Z]{2}")


@dataclass(slots=True)
class Table:
    """Texts to look for, each with the label to write over it."""

    labels: dict[str, str] = field(default_factory=dict)
    beginnings: frozenset[str] = frozenset()
    lengths: tuple[int, ...] = ()  # longest first

    def close(self) -> None:
        """All are in it: note what makes most places of a text quick to pass."""
        self.beginnings = frozenset(needle[:2] for needle in self.labels)
        self.lengths = tuple(sorted(set(map(len, self.labels)), reverse=True))

    def find(self, text: str, *, alone: bool = False) -> Iterator[tuple[int, int, str]]:
        """The longest of them at each place; alone means not inside a longer word."""
        if not self.labels:
            return
        for start in range(len(text)):
            if text[start : start + 2] not in self.beginnings:
                continue
            for length in self.lengths:
                label = self.labels.get(text[start : start + length])
                end = start + length
                if label and end <= len(text) and not (alone and _inside_a_word(text, start, end)):
                    yield start, end, label
                    break


@frozen
class Needles:
    """What to look for, folded."""

    anywhere: Table = field(default_factory=Table)
    alone: Table = field(default_factory=Table)  # not inside a longer word
    squeezed: Table = field(default_factory=Table)  # among letters and digits only
    heads: dict[str, str] = field(default_factory=dict)  # as a whole word: the beginning of a longer one


class TooLargeError(Exception):
    """The message is beyond the budget."""


@dataclass(slots=True)
class _Purse:
    """What is left of the budget."""

    left: int = BUDGET

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise TooLargeError


def needles_of(message: Any) -> Needles:
    """All that a text must not contain; raises TooLargeError."""
    purse = _Purse()
    personal: list[tuple[str, Path]] = []
    harmless: set[str] = set()
    for leaf, path, may_be_shown in _values(message, purse):
        whole = fold(leaf).strip()
        # A character may take four bytes, and fold to eighteen characters.
        purse.spend(max(0, len(whole.encode("utf-8", "surrogatepass")) - len(leaf)))
        if may_be_shown:
            harmless.update(WORD.findall(whole))
        elif len(whole) > 1:
            personal.append((whole, path))
    common = EVERYDAY | harmless
    parts = _EVERYDAY_PARTS.union(*map(_grams, harmless))
    needles = Needles()
    for whole, path in personal:
        _add(needles, whole, path, common, parts)
    for table in (needles.anywhere, needles.alone, needles.squeezed):
        table.close()
    return needles


def _inside_a_word(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()


def _grams(text: str) -> Iterator[str]:
    return (text[at : at + GRAM] for at in range(len(text) - GRAM + 1))


_EVERYDAY_PARTS: Final = frozenset(part for word in EVERYDAY for part in _grams(word))


def _values(message: Any, purse: _Purse) -> Iterator[tuple[str, Path, bool]]:
    """Every value and every telling key as a text, with its path and whether it may be shown."""
    schema = message.get("schema") if isinstance(message, Mapping) else None
    of_proca = isinstance(schema, str) and schema.startswith("proca:")
    waiting: list[tuple[Path, Any]] = [((), message)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            purse.spend(1 + len(value))
            for key, inner in value.items():
                name = str(key)
                waiting.append((_below(path, name), inner))
                if not _PLAIN_KEY.fullmatch(name):
                    waiting.append((_below(path, "*"), name))
        elif isinstance(value, list | tuple | set | frozenset):
            # A syncer may have put anything into the message, even the message itself.
            purse.spend(1 + len(value))
            waiting.extend((path, inner) for inner in value)
        else:
            leaf = _leaf(value)
            purse.spend(len(leaf))
            yield leaf, path, of_proca and _harmless(path, value)


def _below(path: Path, name: str) -> Path:
    """The path one level down; a name that makes everything below it a person's is kept at any depth."""
    if len(path) < DEEPEST:
        return (*path, name)
    return (*path[:-1], name) if name in PROPER else path


def _harmless(path: Path, value: Any) -> bool:
    if path[-1:] in (("area",), ("country",)):
        return isinstance(value, str) and _COUNTRY.fullmatch(value) is not None
    return path in HARMLESS


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return value[: BUDGET + 1].decode("utf-8", "replace")
    if isinstance(value, bool) or value is None or not isinstance(value, int | float):
        return ""
    if isinstance(value, int) and value.bit_length() > 4096:
        return ""  # Python refuses to format it, so it is in no text either
    number = str(value)
    return number if sum(map(str.isdigit, number)) >= 5 else ""


def _add(needles: Needles, whole: str, path: Path, common: AbstractSet[str], parts: AbstractSet[str]) -> None:
    """Add a value and its words; common ones only if they are in a proper field."""
    proper = not PROPER.isdisjoint(path)
    if whole in common and not proper:
        return
    label = f"‹{_shown(path)}›"
    (needles.anywhere if _telling(whole) else needles.alone).labels.setdefault(whole[:LONGEST], label)
    bare = squeeze(whole)
    if len(bare) > GRAM:
        for part in _grams(bare):
            if proper or part not in parts:
                needles.squeezed.labels.setdefault(part, label)
    elif len(bare) >= (6 if any(map(str.isdigit, bare)) else GRAM):
        needles.squeezed.labels.setdefault(bare, label)
    for word in WORD.findall(whole):
        if word in common and not proper:
            continue
        if _telling(word):
            needles.anywhere.labels.setdefault(word[:LONGEST], label)
            # Other code truncates values before quoting them: the beginning of a word counts as the word.
            for length in range(4, min(len(word), LONGEST)):
                needles.heads.setdefault(word[:length], label)
        elif proper and len(word) > 1 and not word.isdigit() and "@" not in whole:
            needles.alone.labels.setdefault(word, label)


def _telling(word: str) -> bool:
    """Long enough to be searched for inside other words; scripts without spaces have short names."""
    return len(word) >= 4 or (len(word) >= 2 and not word.isascii())


def _shown(path: Path) -> str:
    return ".".join(part if part in FIELDS else "*" for part in path) or "message"
