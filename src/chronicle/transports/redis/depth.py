"""How much there is for a group: what the script DEPTH answers."""

from __future__ import annotations

from typing import NamedTuple


class Depth(NamedTuple):
    """Entries, by what keeps them."""

    unread: int  # -1: some, but Redis cannot tell how many
    pending: int
    delayed: int  # they wait for another try
    orphaned: int  # pending, and their consumers are not alive
    trimmed: int  # ever, before the group had read them
    own: int  # pending under our own name

    @property
    def free(self) -> int | None:
        """How many nobody works on, if Redis can tell."""
        return None if self.unread < 0 else self.unread + self.delayed + self.orphaned

    @property
    def waits(self) -> int | None:
        """How many wait for the group, if Redis can tell."""
        return None if self.unread < 0 else self.unread + self.pending + self.delayed
