"""A message in the hands of a program, until it is settled.

Rule 1 (R-003-25): exactly one of `ack`, `nack` and `reject` settles it; a second one is an error.
Rule 2: a verdict is handed over and carried out by the run. If the connection breaks before that, the message
        comes again, as it does when the program dies.
Rule 3 (D-21): a reason may quote the message; it is masked before it is logged or written on a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Asked, Failed, Outcome
from chronicle.core.pipeline import Prepared
from chronicle.errors import AlreadySettled, DeadLetter, MessageGone
from chronicle.workers.handler import SYNCED, Handler

if TYPE_CHECKING:
    from chronicle.workers.hands import Hands

A = TypeVar("A")
NACKED = "the program nacked it"


class Message(Generic[A]):
    """One message: its value, what the broker says about it, and the three ways to settle it."""

    __slots__ = ("_claim", "_gone", "_handler", "_hands", "_prepared", "_started", "delivery", "value")

    def __init__(
        self, value: A, delivery: Delivery, prepared: Prepared, started: float, handler: Handler, hands: Hands
    ) -> None:
        self.value = value
        self.delivery = delivery
        self._prepared = prepared
        self._started = started
        self._handler = handler
        self._hands = hands
        self._claim = [None]  # whoever takes it out settles the message: only one can
        self._gone = False

    @property
    def attempts(self) -> int:
        """Which try this is, counted from one (R-003-21)."""
        return self.delivery.attempts

    def ack(self) -> None:
        """It is handled."""
        self._settle(SYNCED)

    def nack(self, reason: str = NACKED) -> None:
        """It failed: it is tried again later, or dead-lettered after its last try (R-003-22 to 24)."""
        self._settle(Failed(self._masked(reason) if reason is not NACKED else reason))

    def reject(self, reason: str) -> None:
        """No further try would help: dead-letter it, with this reason."""
        self._settle(Asked(DeadLetter(), self._masked(reason)))

    def _masked(self, reason: str) -> str:
        asked = self._handler.raised(DeadLetter(reason), self._prepared.message, self.delivery)
        return asked.reason if isinstance(asked, Asked) else ""

    def _settle(self, outcome: Outcome) -> None:
        try:
            self._claim.pop()
        except IndexError:
            if not self._gone:
                raise AlreadySettled("this message is settled already") from None
        else:
            self._gone = not self._hands.settle(
                self._handler.settlement(self.delivery, outcome, self._started, self._prepared)
            )
        if self._gone:
            raise MessageGone("this message can no longer be settled: the broker has it back")

    def __repr__(self) -> str:
        """Ids and sizes only: it ends up in tracebacks and logs."""
        return f"<Message {self.delivery!r}>"
