"""What is settled beyond a committed offset, as the text that is committed with it.

Rule 1: it is written in one of two forms: the lengths of alternating open and settled runs (`c1`), or a map
        with a bit for each offset (`c2`) where the runs do not fit and the map reaches further. Text that is
        too long ends early: what it does not tell is delivered again.
Rule 2: to believe a wrong text would lose messages. So it carries a checksum, over the offset as well: one
        that is damaged, foreign, or was copied to another offset (as mirroring tools do) reads as nothing.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

Run: TypeAlias = tuple[int, int]  # the first offset of a run, and the one after its last


class Position(NamedTuple):
    """What is committed for a partition: the watermark, and what is settled beyond it."""

    offset: int
    metadata: str = ""


ROOM: Final = 2000  # characters; a broker takes 4096 bytes unless it is told otherwise
LONGEST: Final = 8192  # no text of ours is longer
LAST: Final = 2**63 - 1  # the largest offset there can be
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
SHAPE: Final = re.compile(r"(c[12]):([0-9a-z]{1,7}):([0-9A-Za-z+/,]+)", re.ASCII)
LENGTHS: Final = re.compile(r"[0-9a-z]{1,13}(?:,[0-9a-z]{1,13})*", re.ASCII)
HEAD: Final = len("c1:0123456:")


def write(offset: int, runs: Iterable[Run], room: int = ROOM) -> str:
    """The settled runs beyond this offset, in ascending order, as a text of at most `room` characters."""
    left = room - HEAD
    ahead = iter(runs)
    told: list[Run] = []
    text: list[str] = []
    at = offset
    for begin, end in ahead:
        pair = f"{_in_36(begin - at)},{_in_36(end - begin)}"
        if left < len(pair):
            bits = _map(offset, chain(told, [(begin, end)], ahead), room - HEAD)
            if offset + bits.bit_length() > at:
                return _signed("c2", offset, _written(bits))
            break
        left -= len(pair) + 1
        told.append((begin, end))
        text.append(pair)
        at = end
    return _signed("c1", offset, ",".join(text)) if text else ""


def read(offset: int, text: str) -> list[Run]:
    """The settled runs that were written for this offset; none if it is not such a text."""
    shape = SHAPE.fullmatch(text) if len(text) <= LONGEST else None
    if shape is None or offset < 0 or text != _signed(shape[1], offset, shape[3]):
        return []
    runs = _read_lengths(offset, shape[3]) if shape[1] == "c1" else _read_map(offset, shape[3])
    in_order = all(earlier[1] < later[0] for earlier, later in pairwise(runs))
    return runs if in_order and all(begin < end <= LAST for begin, end in runs) else []


def unite(runs: Iterable[Run], others: Iterable[Run]) -> list[Run]:
    """What is in either, in ascending order."""
    united: list[Run] = []
    for begin, end in sorted(chain(runs, others)):
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((begin, end))
    return united


def _signed(form: str, offset: int, text: str) -> str:
    return f"{form}:{_in_36(crc32(f'{form}:{offset}:{text}'.encode()))}:{text}"


def _map(offset: int, runs: Iterable[Run], room: int) -> int:
    """A bit for each offset from this one on, as many as fit."""
    size = room // 4 * 3 * 8  # four characters for three bytes
    bits = 0
    for begin, end in runs:
        if begin - offset >= size:
            break
        length = min(end - offset, size) - (begin - offset)
        bits |= ((1 << length) - 1) << (begin - offset)
    return bits


def _written(bits: int) -> str:
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode().rstrip("=")


def _read_map(offset: int, text: str) -> list[Run]:
    try:
        bits = int.from_bytes(b64decode(text + "=" * (-len(text) % 4), validate=True), "little")
    except Error:
        return []
    ones = re.finditer("1+", f"{bits:b}"[::-1])
    return [(offset + run.start(), offset + run.end()) for run in ones]


def _read_lengths(offset: int, text: str) -> list[Run]:
    lengths = [int(length, 36) for length in text.split(",")] if LENGTHS.fullmatch(text) else []
    return list(_runs(offset, lengths)) if len(lengths) % 2 == 0 else []


def _runs(offset: int, lengths: list[int]) -> Iterator[Run]:
    for opened, settled in zip(lengths[::2], lengths[1::2], strict=True):
        offset += opened
        yield offset, offset + settled
        offset += settled


def _in_36(number: int) -> str:
    text = ""
    while number >= 36:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return DIGITS[number] + text
