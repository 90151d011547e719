"""A delivery with its verdict, on its way back to the broker and into the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from chronicle.core.delivery import Delivery
from chronicle.core.names import names_in
from chronicle.core.outcome import Action, Interrupted, Outcome, Verdict
from chronicle.core.policy import Policy, decide


class Fate(StrEnum):
    """How carrying out a verdict went."""

    OPEN = "open"
    DONE = "done"
    REJECTED = "rejected"  # a dead letter that was left to the broker: whether it is kept is not known
    STALE = "stale"  # the connection it came on is gone: the broker redelivers it
    FAILED = "failed"  # the broker did not accept it: the message is still there
    ASIDE = "aside"  # nobody can carry it out: unsettled until the connection ends, and in nobody's way


@dataclass(slots=True, eq=False)
class Settlement:
    """What became of one delivery. Made by a worker, settled by a transport, passed to the observer."""

    delivery: Delivery
    outcome: Outcome
    verdict: Verdict
    seconds: float = 0.0
    action_id: int | None = None
    notes: tuple[str, ...] = ()
    opened: bool = False  # its personal data was sealed and could be read
    fate: Fate = Fate.OPEN
    error: str = ""
    told: bool = False  # the log has its verdict, which is carried out later

    @property
    def is_done(self) -> bool:
        """Whether the verdict was carried out: the message is not here any more."""
        return self.fate is Fate.DONE or self.fate is Fate.REJECTED


def interrupted(delivery: Delivery) -> Settlement:
    """A delivery whose syncer had not finished when the process ended; with its id if readable (D-11)."""
    outcome = Interrupted()
    settlement = Settlement(delivery, outcome, decide(outcome, delivery, Policy()))
    settlement.action_id, _ = names_in(delivery.body)
    return settlement


def not_taken(settlement: Settlement, error: str) -> Settlement:
    """A verdict that a lost connection took with it: the message comes again (R-000-42)."""
    left = settlement.verdict.action is Action.LEAVE  # there was nothing to carry out
    if settlement.fate is not Fate.STALE and not left:
        settlement.fate, settlement.error = Fate.FAILED, error
    return settlement
