"""How a message was handled, as its record stores it under `chronicle`.

{"outcome": "failed", "verdict": "dead-letter", "reason": "the syncer returned False",
 "duration_ms": 12.5, "attempts": 2, "at": 1772446272000}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chronicle.core.deadletters.death import capped
from chronicle.core.outcome import Action, Asked, Outcome, Synced
from chronicle.core.settlement import Fate, Settlement


def account_of(settlement: Settlement, now: int) -> dict[str, Any]:
    """What became of a delivery; `now` is in milliseconds since 1970."""
    return {
        "outcome": kind_of(settlement.outcome),
        "verdict": "reject" if settlement.fate is Fate.REJECTED else str(settlement.verdict.action),
        "reason": capped(settlement.verdict.reason),
        "duration_ms": round(settlement.seconds * 1000, 3),
        "attempts": settlement.delivery.attempts,
        "at": now,
    }


def kind_of(outcome: Outcome) -> str:
    """The outcome in one word."""
    return type(outcome).__name__.lower()


def is_final(settlement: Settlement) -> bool:
    """Whether the broker has carried out the verdict, and the message does not come back."""
    ends = (Action.ACK, Action.DEAD_LETTER, Action.DROP)
    return settlement.is_done and settlement.verdict.action in ends


def tells_outcome(account: Mapping[str, Any]) -> bool:
    """Whether this account says how its message was handled; a bare copy of a queue does not."""
    return isinstance(account.get("outcome"), str)


def went_wrong(account: Mapping[str, Any]) -> bool:
    """Whether the message failed: its syncer neither returned True nor asked to drop it."""
    outcome, verdict = account.get("outcome"), account.get("verdict")
    return outcome != kind_of(Synced()) and (outcome, verdict) != (Asked.__name__.lower(), str(Action.DROP))
