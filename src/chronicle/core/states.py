"""The states of a consumer whose queue is in this process, in a file, or read by a Reader.

Such a queue has none of a broker's states, so it has a small table of its own. A broker's table is in its own
folder and in its record; `docs/states.md` is drawn from the records.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.core.machine import Table


class Embedded(StrEnum):
    """States of a consumer whose queue is in this process, in a file, or read by a Reader."""

    CLOSED = "Closed"
    OPENING = "Opening"
    DELIVERING = "Delivering"
    WAITING = "Waiting"
    DRAINING = "Draining"


class EmbeddedEvent(StrEnum):
    """What can happen to it."""

    OPEN = "open"
    OPENED = "opened"
    STOP = "stop"
    LOST = "lost"
    SETTLED = "settled"
    DEADLINE = "deadline"


EMBEDDED: Final[Table] = {
    (Embedded.CLOSED, EmbeddedEvent.OPEN): Embedded.OPENING,
    (Embedded.WAITING, EmbeddedEvent.OPEN): Embedded.OPENING,
    (Embedded.OPENING, EmbeddedEvent.OPENED): Embedded.DELIVERING,
    (Embedded.OPENING, EmbeddedEvent.LOST): Embedded.WAITING,
    (Embedded.DELIVERING, EmbeddedEvent.LOST): Embedded.WAITING,
    (Embedded.WAITING, EmbeddedEvent.LOST): Embedded.WAITING,
    (Embedded.OPENING, EmbeddedEvent.STOP): Embedded.DRAINING,
    (Embedded.DELIVERING, EmbeddedEvent.STOP): Embedded.DRAINING,
    (Embedded.WAITING, EmbeddedEvent.STOP): Embedded.DRAINING,
    (Embedded.DRAINING, EmbeddedEvent.STOP): Embedded.DRAINING,
    (Embedded.CLOSED, EmbeddedEvent.STOP): Embedded.CLOSED,
    (Embedded.DRAINING, EmbeddedEvent.LOST): Embedded.CLOSED,
    (Embedded.DRAINING, EmbeddedEvent.SETTLED): Embedded.CLOSED,
    (Embedded.DRAINING, EmbeddedEvent.DEADLINE): Embedded.CLOSED,
    (Embedded.CLOSED, EmbeddedEvent.LOST): Embedded.CLOSED,
    (Embedded.CLOSED, EmbeddedEvent.SETTLED): Embedded.CLOSED,
    (Embedded.CLOSED, EmbeddedEvent.DEADLINE): Embedded.CLOSED,
}
