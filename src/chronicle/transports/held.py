"""What a queue in memory has handed out.

Rule: a delivery gets a new lease every time: by that a verdict about an earlier try is recognised as stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from chronicle.core.delivery import Delivery, Lease
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement


class Held:
    """Deliveries that are not settled, in the order in which they were handed out."""

    def __init__(self) -> None:
        self._held: dict[Lease | None, Delivery] = {}

    def hand_out(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        for delivery in deliveries:
            delivery.lease = lease = Lease()
            self._held[lease] = delivery
        return deliveries

    def settle(
        self,
        work: Sequence[Settlement],
        *,
        bury: Callable[[Settlement], None],
        put_later: Callable[[Delivery, float], None],
    ) -> Sequence[Settlement]:
        """Carry the verdicts out; all are final at once."""
        for settlement in work:
            verdict, lease = settlement.verdict, settlement.delivery.lease
            held = lease in self._held
            settlement.fate = Fate.DONE if held else Fate.STALE
            if not held or verdict.action is Action.LEAVE:
                continue
            if verdict.action is Action.DEAD_LETTER:
                bury(settlement)
            elif verdict.action in (Action.REQUEUE, Action.RETRY):
                put_later(settlement.delivery.again(round(time.time() * 1000)), verdict.delay or 0.0)
            del self._held[lease]
        return work

    def take_back(self) -> list[Delivery]:
        """What was not settled; nobody holds it any more."""
        back = list(self._held.values())
        self._held.clear()
        return back

    def __len__(self) -> int:
        return len(self._held)
