"""When a question for more entries is worth its round trip."""

from __future__ import annotations

from typing import Final

JOIN: Final = 0.005  # seconds that room for a few entries waits for more


class Window:
    """The entries that may be held at once."""

    def __init__(self, prefetch: int) -> None:
        self._enough = -(-prefetch // 4)
        self._asked_at = 0.0

    def is_worth_it(self, free: int, now: float) -> bool:
        """Whether to ask for so many entries now, or to wait a moment until there is room for more."""
        return free > 0 and (free >= self._enough or now - self._asked_at > JOIN)

    def asked(self, now: float) -> None:
        self._asked_at = now
