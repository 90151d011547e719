"""Verdicts that the server does not take now: kept, told, and asked again.

Rule (S6, S-e): without memory, or with a key of the wrong type, an entry stays unsettled and held, and the
        log says why. Nothing is lost, and nothing is acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from time import monotonic
from typing import Final

from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.transports.redis.answers import OOM, WRONG_TYPE, word_of
from chronicle.transports.redis.keys import Keys

REFUSED: Final = "redis.refused"
OUT_OF_MEMORY: Final = "redis.out_of_memory"
LATER: Final = 1.0  # seconds until a verdict that was refused is tried again
TELL: Final = 30.0  # seconds between two lines about that


class Refusals:
    """What was refused and waits for its next try."""

    def __init__(self, keys: Keys, notices: deque[Notice]) -> None:
        self._keys = keys
        self._notices = notices
        self._kept: list[Settlement] = []
        self._retry_at = 0.0
        self._told_at = -TELL

    def keep(self, settlement: Settlement, error: Exception) -> bool:
        """Keep it for later, if that can help; False for any other error."""
        word = word_of(error)
        if word not in (OOM, WRONG_TYPE) and WRONG_TYPE not in str(error):  # a script quotes the word
            return False
        now = monotonic()
        self._kept.append(settlement)
        self._retry_at = now + LATER
        if now - self._told_at >= TELL:
            self._told_at = now
            self._tell(out_of_memory=word == OOM)
        return True

    def due(self, now: float) -> list[Settlement]:
        """What may be asked again."""
        if not self._kept or now < self._retry_at:
            return []
        kept, self._kept = self._kept, []
        return kept

    def hurry(self) -> None:
        self._retry_at = 0.0

    def __contains__(self, settlement: Settlement) -> bool:
        return settlement in self._kept

    def clear(self) -> None:
        self._kept.clear()

    def _tell(self, *, out_of_memory: bool) -> None:
        if out_of_memory:
            event, why = (
                OUT_OF_MEMORY,
                "the server is out of memory (maxmemory): give it more, or delete something",
            )
        else:
            event = REFUSED
            why = f"{self._keys.dead_letters} is no stream, or {self._keys.waiting} no sorted set: rename it"
        text = f"a verdict cannot be carried out, and is tried again; the entry stays unsettled: {why}"
        self._notices.append(Notice(event, logging.ERROR, text, {"waiting": len(self._kept)}))
