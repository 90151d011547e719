"""A circuit breaker: stop before a wrong key store empties a whole queue into the dead letters (Z7)."""

from __future__ import annotations

from typing import Final

from chronicle.core.outcome import Invalid
from chronicle.core.settlement import Settlement

LIMIT: Final = 20


class SealBreaker:
    """Counts messages in a row whose personal data could not be opened; plain ones do not count."""

    problem: Final = f"{LIMIT} messages in a row could not be decrypted; try `chronicle keys check`"

    def __init__(self) -> None:
        self._in_a_row = 0

    def broken_by(self, settlement: Settlement) -> bool:
        """Whether this is one too many: it, and those after it, must stay in the queue."""
        if isinstance(settlement.outcome, Invalid) and settlement.outcome.sealed:
            self._in_a_row += 1
            return self._in_a_row >= LIMIT
        if settlement.opened:
            self._in_a_row = 0
        return False
