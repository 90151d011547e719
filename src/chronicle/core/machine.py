"""State machines as tables.

Rule 1: a machine is a table and its current state; it calls nothing but its watcher.
Rule 2: an event that the table does not list for the current state is a bug and raises, except that
        the same stop or loss may be reported twice: an event whose target is the current state is silent.
Rule 3: what happens with every message is named as such, so that a log can leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

Table: TypeAlias = Mapping[tuple[str, str], str]
Watcher: TypeAlias = Callable[[str, str, str], None]


class Machine:
    """One consumer's state, moved by events along a table."""

    def __init__(
        self,
        table: Table,
        start: str,
        watcher: Watcher | None = None,
        *,
        everyday: frozenset[str] = frozenset(),
    ) -> None:
        self.state = start
        self.everyday = everyday  # events
        self._table = table
        self._watcher = watcher

    def watch(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def fire(self, event: str) -> str:
        """Follow the transition for this event; the new state."""
        before = self.state
        after = self._table.get((before, event))
        if after is None:
            raise AssertionError(f"no transition for {event} from {before}")
        if after != before:
            self.state = after
            if self._watcher is not None:
                self._watcher(before, after, event)
        return after

    def can(self, event: str) -> bool:
        return (self.state, event) in self._table
