"""What becomes of a dead letter in a redrive: where it goes, or why it stays.

Rule 1: a letter goes back to the queue it came from, if the operator has named that one, or to the one queue
        named for all. What a header says alone moves nothing: a producer can write any (Z16).
Rule 2: no cycles: a letter that was redriven as often as allowed stays, and none goes to the queue it is in.
Rule 3: a letter whose headers cannot be read stays: sent again, it would lose them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from chronicle.core.deadletters.conditions import Condition, matches
from chronicle.core.deadletters.letter import Letter
from chronicle.core.frozen import frozen


class Why(StrEnum):
    """Why a dead letter stays where it is."""

    OTHER = "did not match"
    ELSEWHERE = "from a queue that was not named"
    OFTEN = "redriven as often as --max-redrives allows"
    UNREADABLE = "with headers that cannot be read"
    UNSENDABLE = "with a header or of a size that the broker does not accept"
    REFUSED = "because the target queue refused it"


@frozen
class Go:
    """Back to work, on this queue."""

    queue: str


@frozen
class Stay:
    """Left as it is."""

    why: Why


Move: TypeAlias = Go | Stay


@frozen
class RedrivePlan:
    """The operator's choices about a redrive."""

    homes: frozenset[str]  # the queues that letters may go back to
    conditions: tuple[Condition, ...] = ()
    to: str = ""  # empty: each to where it came from
    max_redrives: int = 3


def decide_move(letter: Letter, plan: RedrivePlan, now: int) -> Move:
    """Where this letter goes; `now` in milliseconds since 1970."""
    if not matches(letter, plan.conditions, now):
        return Stay(Why.OTHER)
    if letter.fault:
        return Stay(Why.UNREADABLE)
    if letter.death.redrives >= plan.max_redrives:
        return Stay(Why.OFTEN)
    if plan.to or letter.home in plan.homes:
        return Go(plan.to or letter.home)
    return Stay(Why.ELSEWHERE)
