"""A circuit breaker: stop before a wrong key store empties a whole queue into the dead letters (Z7)."""

from __future__ import annotations

from typing import Final

from chronicle.core.outcome import Invalid
from chronicle.core.settlement import Settlement

LIMIT: Final = 20


class SealBreaker:
    """Counts messages in a row whose personal data could not be opened; plain ones do not count.

    Those of a signer that is not pinned count only until one of a pinned signer was opened: then the pins are
    right, and a stranger who may publish must not be able to stop the run.
    """

    problem: Final = f"{LIMIT} messages in a row could not be decrypted; try `chronicle keys check`"

    def __init__(self) -> None:
        self._in_a_row = 0
        self._opened = False  # any, in this run

    def broken_by(self, settlement: Settlement) -> bool:
        """Whether this is one too many: it, and those after it, must stay in the queue."""
        outcome = settlement.outcome
        if isinstance(outcome, Invalid) and outcome.sealed and not (outcome.stranger and self._opened):
            self._in_a_row += 1
            return self._in_a_row >= LIMIT
        if settlement.opened:
            self._in_a_row = 0
            self._opened = True
        return False
