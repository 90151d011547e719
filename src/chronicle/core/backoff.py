"""How long to wait before the next try: one rule for reconnects and for requeued messages."""

from __future__ import annotations

from chronicle.core.frozen import frozen


@frozen
class Backoff:
    """Delays that grow from `initial` by `multiplier` up to `maximum`, in seconds."""

    initial: float
    maximum: float
    multiplier: float = 2.0

    def ceiling(self, attempt: int) -> float:
        """The longest wait before try number `attempt` (the first is 1)."""
        try:
            grown = self.initial * self.multiplier ** max(attempt - 1, 0)
        except OverflowError:  # 2.0 ** 2000 overflows a float, and a broker may be away that long
            return self.maximum
        return min(self.maximum, grown)

    def delay(self, attempt: int, luck: float) -> float:
        """Full jitter above the initial wait; `luck` is a random number from 0 to 1."""
        return self.initial + luck * (self.ceiling(attempt) - self.initial)
