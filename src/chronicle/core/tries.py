"""How often this process has seen a message fail, for brokers that do not count.

A classic RabbitMQ queue leaves no trace of a plain requeue but one flag, so a delay that is to grow needs
a memory of its own. It is small, bounded and forgets the oldest; forgetting makes a delay short again and
nothing worse.
"""

from __future__ import annotations

from collections import OrderedDict

from chronicle.core.delivery import Delivery


class Tries:
    """A bounded memory of failures, by queue and body."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._seen: OrderedDict[int, int] = OrderedDict()

    def another(self, delivery: Delivery) -> int:
        """Count one more failed try of this message; how many there have been."""
        key = hash((delivery.queue, delivery.body))
        tries = max(self._seen.pop(key, 0) + 1, delivery.attempts)
        self._seen[key] = tries
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return tries
