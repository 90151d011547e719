"""Durations and sizes as people write them: `250ms`, `5s`, `10m`; `64KiB`, `16MiB`.

Rule 1: a duration without a unit is refused, except zero: 5 would be ambiguous.
Rule 2: what is printed can be read back.
"""

from __future__ import annotations

import re
from typing import Final

DURATION_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SIZE_UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
LONGEST: Final = 366 * 86400.0

# At most twelve digits: more is a typo, and int() of thousands of digits is slow.
_NUMBER: Final = r"(\d{1,12}(?:\.\d{1,6})?)"
_DURATION: Final = re.compile(rf"{_NUMBER}\s?(ms|s|m|h|d)?", re.ASCII)
_SIZE: Final = re.compile(rf"{_NUMBER}\s?([KMG]i?B|B)?", re.ASCII | re.IGNORECASE)
_SIZE_NAMES: Final = {name.lower(): factor for name, factor in SIZE_UNITS.items()}


def parse_duration(text: str) -> float:
    """Seconds from `250ms`, `5s`, `10m`, `1h`, `2d` or plain `0`. Raises ValueError with what is accepted."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("a duration such as 250ms, 5s, 10m or 1h")
    number, unit = float(found[1]), found[2]
    if unit is None:
        if number:
            raise ValueError(f"a duration with its unit, such as {found[1]}s or {found[1]}m")
        return 0.0
    seconds = number * DURATION_UNITS[unit]
    if seconds > LONGEST:
        raise ValueError("a duration of at most 366d")
    return seconds


def parse_size(text: str) -> int:
    """Bytes from `16MiB`, `64KiB`, `1MB` or plain bytes. Raises ValueError with what is accepted."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("a size such as 64KiB, 16MiB, 1MB or a number of bytes")
    size = float(found[1]) * _SIZE_NAMES[(found[2] or "").lower()]
    if size != int(size):
        raise ValueError("a size that comes to whole bytes")
    return int(size)


def roughly(seconds: float) -> str:
    """A time as people say it, with two units at most: `3.2s`, `4m 12s`, `1h 5m`."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, smaller in (("d", "h"), ("h", "m"), ("m", "s")):
        large, small = round(DURATION_UNITS[unit]), round(DURATION_UNITS[smaller])
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large}{unit} {rest}{smaller}" if rest else f"{whole // large}{unit}"
    return f"{whole}s"


def format_duration(seconds: float) -> str:
    """The shortest spelling, with the largest unit that gives a whole number."""
    thousandths = round(seconds * 1000)
    if thousandths == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        factor = round(DURATION_UNITS[unit] * 1000)
        if thousandths % factor == 0:
            return f"{thousandths // factor}{unit}"
    return f"{thousandths}ms" if thousandths < 1000 else f"{thousandths / 1000}s"
