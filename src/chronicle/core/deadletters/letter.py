"""A dead letter as a person asks about it: which message, why it died, where and when.

Rule 1: facts only; whether they may be shown is up to the caller. A producer can write any header (Z16).
Rule 2: a body that cannot be read, or is larger than the caller wants parsed, is not an error: the letter
        then has no id and no schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.death import Death, came_from, death_of
from chronicle.core.delivery import Delivery
from chronicle.core.names import names_in


@dataclass(frozen=True, slots=True)
class Letter:
    """What can be asked about one dead letter."""

    action_id: int | None
    schema: str
    size: int
    death: Death
    home: str  # the queue it came from
    died: int | None  # milliseconds since 1970; without a death's time, when it was published
    fault: str = ""  # why its headers cannot be read, if they cannot


def letter_of(delivery: Delivery, queue: str, max_body: int = MAX_BODY) -> Letter:
    """Read a delivery of a dead-letter queue; `queue` is the one whose dead letters these are."""
    action_id, schema = names_in(delivery.body, max_body)
    death = death_of(delivery)
    return Letter(
        action_id,
        schema,
        len(delivery.body),
        death,
        came_from(delivery, queue),
        death.last or delivery.timestamp,
        delivery.envelope.fault,
    )
