"""Which message is in work here.

It is a context variable, so that a task or thread that a syncer starts with a copy of its context keeps its
message, also when the next one is in work.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final, TypeAlias

from chronicle.core.delivery import Delivery

InWork: TypeAlias = tuple[Delivery, int | None]  # with the action's id
Ticket: TypeAlias = Token[InWork | None]

IN_WORK: Final[ContextVar[InWork | None]] = ContextVar("chronicle_in_work", default=None)


def current_delivery() -> Delivery | None:
    """The delivery whose syncer is running here; None outside of one."""
    in_work = IN_WORK.get()
    return None if in_work is None else in_work[0]


def begin(delivery: Delivery, action_id: int | None) -> Ticket:
    """From now on this one is in work here; the ticket is for `end`."""
    return IN_WORK.set((delivery, action_id))


def end(ticket: Ticket) -> None:
    """It is no longer in work."""
    try:
        IN_WORK.reset(ticket)
    except ValueError:
        return  # a coroutine that is thrown away ends in whatever context does so
