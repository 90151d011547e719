"""A token bucket: at most this many per second. The time is passed in.

Rule: the bucket holds a moment's worth and at least one, so a pause is not followed by a burst.
"""

from __future__ import annotations

import re
from typing import Final

SECONDS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_RATE: Final = re.compile(r"(\d{1,7})\s?/\s?(s|min|m|h)", re.ASCII)


class RateLimit:
    """How many may go now."""

    def __init__(self, rate: float, now: float, moment: float = 0.1) -> None:
        """`rate` is per second; infinite means no limit. What a moment was too long for may go at once."""
        self._rate = rate
        self._most = max(1.0, rate * moment)
        self._tokens = 1.0
        self._filled = now

    def room(self, now: float, wanted: int) -> int:
        """How many of these may go now."""
        if self._rate == float("inf"):
            return wanted
        self._tokens = min(self._most, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        return min(wanted, int(self._tokens))

    def spend(self, number: int) -> None:
        """This many went."""
        self._tokens -= number

    def wait(self) -> float:
        """Seconds until one more may go, counted from the last call of `room`."""
        return max(0.0, (1.0 - self._tokens) / self._rate)


def parse_rate(text: str) -> float:
    """How many per second, from `50/s`, `600/min` or `100/h`. Raises ValueError with what is accepted."""
    found = _RATE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise ValueError("a rate such as 50/s, 600/min or 100/h")
    return int(found[1]) / SECONDS[found[2]]
