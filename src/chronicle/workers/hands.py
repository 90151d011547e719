"""Deliveries for a loop of the user's own: it takes one after the other, and settles each when it likes.

Rule 1: the user's threads never touch the transport. Deliveries go to them in one queue, verdicts come back
        in the mailbox, and the pump is turned at home: a signal that interrupts the user interrupts nobody
        else.
Rule 2: a delivery is open until somebody settles it or the pump takes it back, because its connection is
        gone or all is over. Whoever takes it out of `_open` first has it, so nobody needs a lock.
Rule 3: a verdict wakes the pump only if somebody waits for the next delivery, or half the window is settled.
        Otherwise it goes with the pump's next turn, a quarter of a second later at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Settlement, interrupted
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import Turn
from chronicle.workers.slot import Slot
from chronicle.workers.turns import TurnTaking


def nobody() -> None:
    """Nobody waits."""


class Hands:
    """Workers, as the pump sees it; a queue to take from, as the user does."""

    def __init__(self, window: int) -> None:
        self._waiting: SimpleQueue[Delivery | None] = SimpleQueue()  # None: that was all
        self._open: dict[Delivery, None] = {}
        self._mailbox = Mailbox(nobody)
        self._often = max(1, window // 2)
        self._takers = 0
        self._finished = False
        self.bell: Callable[[], None] = nobody  # rung when somebody asks and there is something to take

    def at(self, mailbox: Mailbox) -> TurnTaking:
        """These hands as the workers of a run. Bodies are decoded as they are asked for, one at a time."""
        self._mailbox = mailbox
        return TurnTaking(self, mailbox, turns=False)

    # --- the pump's side --------------------------------------------------------------------------------

    @property
    def slots(self) -> Sequence[Slot]:
        """Nobody works here: how long the user takes is the user's affair."""
        return ()

    def start(self) -> None: ...

    def submit(self, batch: Iterable[Delivery]) -> None:
        put = self._waiting.put
        for delivery in batch:
            self._open[delivery] = None
            put(delivery)
        if self._finished:
            self.finish()
        if self._takers:
            self.bell()

    def discard(self) -> list[Delivery]:
        """Take back everything, also what the user has: it can no longer be settled."""
        return list(self._emptied())

    def can_borrow(self) -> bool:
        return False

    def borrow(self, turn: Turn, fileno: int) -> None:  # noqa: ARG002 - it never comes to that
        raise AssertionError("the pump stays at home")

    def stop(self, patience: float) -> bool:  # noqa: ARG002 - there is nothing to wait for
        return True

    # --- the user's side --------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """What was received and is neither settled nor taken back."""
        return len(self._open)

    def take(self, timeout: float) -> Delivery | None:
        """The next delivery; None when there are no more. Raises Empty after so many seconds."""
        try:
            return self.take_now()
        except Empty:
            with self.asking():
                return self._sifted(self._waiting.get(timeout=timeout))

    def take_now(self) -> Delivery | None:
        """The same without waiting."""
        return self._sifted(self._waiting.get_nowait())

    def _sifted(self, delivery: Delivery | None) -> Delivery | None:
        """Pass over what was taken back."""
        while delivery is not None and delivery not in self._open:
            delivery = self._waiting.get_nowait()
        if delivery is None:
            self._waiting.put(None)  # for whoever asks next
        return delivery

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Somebody waits for the next delivery: the pump should hurry."""
        self._takers += 1
        try:
            if self._mailbox:
                self._mailbox.rouse()
            yield
        finally:
            self._takers -= 1

    def settle(self, settlement: Settlement) -> bool:
        """Hand a verdict to the pump; False if the delivery is settled or taken back already."""
        try:
            del self._open[settlement.delivery]
        except KeyError:
            return False
        self._put(settlement)
        return True

    def finish(self) -> None:
        """Give no more to the user; what waits goes back to the broker, unhandled."""
        self._finished = True
        with suppress(Empty):
            while True:
                delivery = self._waiting.get_nowait()
                if delivery is not None:
                    self.settle(interrupted(delivery))
        self.end()

    def close(self) -> None:
        """The user has left: what is not settled goes back as well."""
        self.finish()
        for delivery in self._emptied():
            self._mailbox.put(interrupted(delivery))

    def end(self) -> None:
        """There will be no more deliveries."""
        self._waiting.put(None)
        self.bell()

    def _put(self, settlement: Settlement) -> None:
        mailbox = self._mailbox
        mailbox.put_quietly(settlement)
        if self._takers or len(mailbox) >= self._often:
            mailbox.rouse()

    def _emptied(self) -> Iterator[Delivery]:
        while self._open:
            try:
                yield self._open.popitem()[0]
            except KeyError:  # somebody was faster
                return
