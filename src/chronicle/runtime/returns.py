"""What this process put back on its queue and has not seen again, so that `--until-empty` waits for it.

A quorum queue takes a message back in its own time and calls itself empty meanwhile. Another consumer may
have got the message, so the wait is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronicle.core.delivery import Delivery

PATIENCE: Final = 5.0


class Returns:
    """How many are on their way back, as far as one can tell by the redelivered flag."""

    def __init__(self) -> None:
        self._requeued = 0
        self._awaited = 0
        self._since = 0.0

    def requeued(self, total: int, now: float) -> None:
        """So many were requeued since the start."""
        if total > self._requeued:
            self._awaited += total - self._requeued
            self._requeued = total
            self._since = now

    def came(self, batch: Sequence[Delivery]) -> None:
        if self._awaited:
            self._awaited = max(0, self._awaited - sum(delivery.redelivered for delivery in batch))

    def awaited(self, now: float) -> bool:
        """Whether an empty queue may only seem empty."""
        return self._awaited > 0 and now - self._since < PATIENCE
