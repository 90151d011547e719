"""Where verdicts wait until they are due: requeues with a delay, on brokers that cannot delay a message.

A message that waits here is unsettled: it takes a place in the prefetch window and goes back to the broker if
the process dies. It is logged when it begins to wait, as a broker that delays a message is told at once; when
it is settled, nothing is left to tell. Everything else passes straight through.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from itertools import count

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.policy import grown, held
from chronicle.core.settlement import Fate, Settlement
from chronicle.telemetry.events import Observer
from chronicle.transports.seam import Promises


class Tries:
    """How often this process has seen a message fail, by queue and body, for brokers that do not count.

    A classic RabbitMQ queue records a plain requeue only in one flag. The memory is bounded and forgets the
    oldest; forgetting only makes a delay short again.
    """

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


class Delays:
    """Verdicts on their way to the transport, some of them later."""

    def __init__(self, promises: Promises, observer: Observer) -> None:
        # Where a message is gone when it arrives there is no next try, and so no point in waiting for it.
        self._keeps_delays = promises.delays or not promises.settles
        self._holds = promises.holds
        self._tries = None if promises.counts else Tries()
        self._observer = observer
        self._ready: list[Settlement] = []
        self._sent: list[Settlement] = []  # given to the transport, and not known to be final
        self._later: list[tuple[float, int, Settlement]] = []
        self._order = count()
        self._hurried = False

    def extend(self, left: Iterable[Settlement]) -> None:
        """Pass these straight through: deliveries that are not handled here."""
        self._ready.extend(left)

    def put(self, settlement: Settlement, now: float) -> None:
        verdict = settlement.verdict
        # A retry is always delayed by the transport itself (D-2).
        if verdict.action is not Action.REQUEUE or verdict.delay == 0:
            self._ready.append(settlement)
            return
        if verdict.delay is None:
            verdict = grown(verdict, self._failed_tries(settlement.delivery))
        if self._keeps_delays or self._hurried:
            settlement.verdict = verdict
            self._ready.append(settlement)
        else:
            settlement.verdict = verdict = held(verdict, self._holds)
            heapq.heappush(self._later, (now + (verdict.delay or 0.0), next(self._order), settlement))
            self._observer.settled((settlement,))
            settlement.told = True

    def _failed_tries(self, delivery: Delivery) -> int:
        return delivery.attempts if self._tries is None else self._tries.another(delivery)

    def due(self, now: float) -> list[Settlement]:
        """What may be settled now."""
        ready, self._ready = self._ready, []
        while self._later and self._later[0][0] <= now:
            ready.append(heapq.heappop(self._later)[2])
        self._sent.extend(ready)
        return ready

    def told(self) -> None:
        """The transport has said what became final; the rest waits for the broker."""
        self._sent = [settlement for settlement in self._sent if settlement.fate is Fate.OPEN]

    def wait(self, now: float) -> float:
        """Seconds until something is due."""
        return max(0.0, self._later[0][0] - now) if self._later else float("inf")

    def send_again(self) -> None:
        """The connection is gone but the verdicts still count: what was not confirmed is sent once more.

        What became final just before the loss is not: the transport says so with its next answer.
        """
        self.told()
        self._ready, self._sent = [*self._sent, *self._ready], []

    def release_revoked(self) -> None:
        """Release what the transport has taken back: there is no point in waiting."""
        if any(_is_revoked(settlement) for _, _, settlement in self._later):
            self._ready.extend(settlement for _, _, settlement in self._later if _is_revoked(settlement))
            self._later = [entry for entry in self._later if not _is_revoked(entry[2])]
            heapq.heapify(self._later)

    def hurry(self) -> None:
        """The process stops: nothing waits any longer."""
        self._hurried = True
        self._ready.extend(settlement for _, _, settlement in self._later)
        self._later.clear()

    def empty(self) -> list[Settlement]:
        """The connection is gone: what was on its way, or waiting here, is back with the broker."""
        left = [*self._sent, *self._ready, *(settlement for _, _, settlement in self._later)]
        self._sent.clear()
        self._ready.clear()
        self._later.clear()
        return left


def _is_revoked(settlement: Settlement) -> bool:
    lease = settlement.delivery.lease
    return lease is not None and lease.over
