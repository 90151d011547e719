"""What happened to a message, and what to do about it.

An outcome is a fact, a verdict is a decision; only `policy.decide` turns the one into the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from chronicle.core.frozen import frozen
from chronicle.errors import Ask, Drop


@frozen
class Synced:
    """The syncer returned True."""


@frozen
class Failed:
    """The syncer returned False, or raised where exceptions count as failures."""

    reason: str = "the syncer returned False"


@frozen
class Asked:
    """The syncer asked for a verdict by raising it."""

    ask: Ask
    reason: str


@frozen
class Invalid:
    """The message never reached the syncer; `sealed` when its personal data could not be opened.

    `stranger` when that is because a key sealed it that is not pinned.
    """

    reason: str
    sealed: bool = False
    stranger: bool = False


@frozen
class Exhausted:
    """The message has gone round the retry loop more often than allowed."""

    retries: int
    limit: int


@frozen
class Fatal:
    """The syncer broke its contract: this process cannot continue."""

    reason: str
    trace: str = ""


@frozen
class Interrupted:
    """The process stops before the syncer has finished; not a failure."""


@frozen
class Revoked:
    """The transport took the delivery back before the syncer was called; another consumer has it."""


Outcome: TypeAlias = Synced | Failed | Asked | Invalid | Exhausted | Fatal | Interrupted | Revoked


def is_drop(outcome: Outcome) -> bool:
    """Whether the syncer dropped the message on purpose."""
    return isinstance(outcome, Asked) and isinstance(outcome.ask, Drop)


class Action(StrEnum):
    """What can be done with a delivery."""

    ACK = "ack"
    REQUEUE = "requeue"
    RETRY = "retry"  # like a requeue, but counted, and delayed by the broker
    DEAD_LETTER = "dead-letter"
    DROP = "drop"
    LEAVE = "leave"


@frozen
class Verdict:
    """What to do with a delivery and why; `delay` is for another try, and None means a growing one."""

    action: Action
    reason: str
    delay: float | None = 0.0
