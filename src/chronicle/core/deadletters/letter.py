"""A dead letter as a person asks about it: which message, why it died, where and when.

Rule 1: facts only; whether they may be shown is up to the caller. A producer can write any header (Z16).
Rule 2: a body that cannot be read, or is larger than the caller wants parsed, is not an error: the letter
        then has no id and no schema.
"""

from __future__ import annotations

from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.death import ENTRY, LONGEST, OFFSET, PARTITION, Death, came_from, death_of
from chronicle.core.delivery import Delivery, count
from chronicle.core.frozen import frozen
from chronicle.core.names import names_in


@frozen
class Letter:
    """What can be asked about one dead letter."""

    action_id: int | None
    schema: str
    size: int
    death: Death
    home: str  # the queue it came from
    died: int | None  # milliseconds since 1970; without a death's time, when it was published
    fault: str = ""  # why its headers cannot be read, if they cannot
    entry: str = ""  # what the broker calls it in its dead-letter queue
    entry_before: str = ""  # … and in the queue where it died


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
        entry_of(delivery),
        entry_before(delivery),
    )


def entry_of(delivery: Delivery) -> str:
    """The id of an entry, PARTITION:OFFSET, or the message id that its producer gave it."""
    origin = delivery.origin
    if "id" in origin:
        return str(origin["id"])
    if "partition" in origin and "offset" in origin:
        return f"{origin['partition']}:{origin['offset']}"
    given = delivery.properties.get("message_id")
    return given if isinstance(given, str) else ""


def entry_before(delivery: Delivery) -> str:
    """The same of the message that died, as the log named it; empty where that is not known."""
    headers = delivery.headers
    if isinstance(entry := headers.get(ENTRY), str):
        return entry[:LONGEST]
    if PARTITION in headers and OFFSET in headers:
        return f"{count(headers[PARTITION])}:{count(headers[OFFSET])}"
    return ""
