"""Large bodies take turns: JSON takes up to forty times its size in memory once it is decoded.

Rule 1: the large bodies that workers have at any time make up at most BUDGET bytes together; one that is
        larger than that goes alone. The others wait here, in their order, and are handed over when a result
        comes back. What is not large never waits.
Rule 2: nothing sleeps for a turn. The pump hands over what may go when it takes results, and owns all of
        this, so there is no lock.
Rule 3: with one worker, and where nothing is decoded, there are no turns: at most one is decoded anyway, and
        messages keep their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Settlement
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import Turn

if TYPE_CHECKING:
    from chronicle.workers.base import Workers
    from chronicle.workers.slot import Slot

LARGE: Final = 64 * 1024
BUDGET: Final = 8 * 1024 * 1024


class TurnTaking:
    """Workers that are given only so many large bodies at a time."""

    def __init__(self, workers: Workers, mailbox: Mailbox, *, turns: bool) -> None:
        self._workers = workers
        self._mailbox = mailbox
        self._turns = turns
        self._out = 0  # bytes of large bodies that workers have
        self._waiting: deque[Delivery] = deque()

    @property
    def slots(self) -> Sequence[Slot]:
        return self._workers.slots

    def start(self) -> None:
        self._workers.start()

    def stop(self, patience: float) -> bool:
        return self._workers.stop(patience)

    def can_borrow(self) -> bool:
        return self._workers.can_borrow()

    def borrow(self, turn: Turn, fileno: int) -> None:
        self._workers.borrow(turn, fileno)

    def submit(self, batch: Sequence[Delivery]) -> None:
        if not self._turns or not any(len(delivery.body) > LARGE for delivery in batch):
            self._workers.submit(batch)
            return
        self._waiting.extend(delivery for delivery in batch if len(delivery.body) > LARGE)
        small = [delivery for delivery in batch if len(delivery.body) <= LARGE]
        if small:
            self._workers.submit(small)
        self._hand_over()

    def take(self) -> list[Settlement]:
        """The finished work; whoever waited for it gets its turn."""
        done = self._mailbox.take()
        if self._out:
            self._out -= _large(settlement.delivery for settlement in done)
            self._hand_over()
        return done

    def discard(self) -> list[Delivery]:
        discarded = self._workers.discard()
        if self._out:
            self._out -= _large(discarded)
            discarded += self._waiting
            self._waiting.clear()
        return discarded

    def _hand_over(self) -> None:
        ready = []
        waiting = self._waiting
        while waiting and (not self._out or self._out + len(waiting[0].body) <= BUDGET):
            delivery = waiting.popleft()
            self._out += len(delivery.body)
            ready.append(delivery)
        if ready:
            self._workers.submit(ready)


def _large(deliveries: Iterable[Delivery]) -> int:
    return sum(size for delivery in deliveries if (size := len(delivery.body)) > LARGE)
