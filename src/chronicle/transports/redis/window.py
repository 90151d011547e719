"""When a question for more entries is worth its round trip."""

from __future__ import annotations


class Window:
    """The entries that may be held at once."""

    def __init__(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._enough = -(-prefetch // 4)  # fewer are not worth a question, unless there is room for no more

    def is_worth_it(self, room: int, free: int, in_engine: int) -> bool:
        """Whether to ask for `free` entries; the engine has room for `room`, and holds `in_engine`."""
        return free > 0 and (free >= self._enough or room + in_engine < self._prefetch)
