"""What becomes of a dead letter: what a broker would do with one, and what the operator wants."""

from __future__ import annotations

from enum import StrEnum

from chronicle.core.frozen import frozen


class Keeping(StrEnum):
    """What would become of a dead letter."""

    KEPT = "kept"
    VANISHES = "vanishes"
    UNKNOWN = "unknown"


@frozen
class Prospect:
    """What would become of a dead letter that is left to the broker, and why."""

    keeping: Keeping
    why: str


@frozen
class LetterTerms:
    """What is known and wanted before a queue is opened, where the broker may have to keep dead letters."""

    prospect: Prospect | None = None  # by the broker's management; None: nobody asked
    allow_drop: bool = False  # the operator accepts a broker that deletes them
    needed_by: str = ""  # the option for which the transport itself must keep them, if there is one
