"""What is said when records are removed, that is settled for a group that nobody is a member of.

Rule: such a group remembers as much as fits into the metadata of its commits, and for as long as the brokers
      keep them, or shorter if it has ever had members. What it has forgotten is seen again, and would be
      redriven again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from chronicle.core.notice import Notice
from chronicle.core.words import many
from chronicle.errors import ChronicleError
from chronicle.transports.kafka.admin import Admin
from chronicle.transports.kafka.metadata import Position, read
from chronicle.transports.seam import Connector, never

FORGOTTEN: Final = "kafka.removal_forgotten"
EXPIRES: Final = "kafka.removal_expires"
UNITS: Final = ((24 * 60, "day"), (60, "hour"), (1, "minute"))  # in minutes; brokers take no less
ANSWER: Final = 2.0  # seconds for what is only good to know


def forgotten(removed: Iterable[tuple[Position, Sequence[int]]]) -> int:
    """How many of these offsets lie beyond what is committed for their partition."""
    count = 0
    for position, offsets in removed:
        told = read(*position)
        reach = told[-1][1] if told else position.offset
        count += sum(offset >= reach for offset in offsets)
    return count


def no_room(topic: str, count: int) -> Notice:
    """So many are forgotten."""
    text = (
        f"{topic}: removed messages lie too far apart to be remembered one by one; "
        "the newest of them will be seen again, unless all older ones are removed as well"
    )
    return Notice(FORGOTTEN, logging.WARNING, text, {"count": count})


def kept(connector: Connector) -> int | None:
    """For how many minutes the brokers remember commits; None if they do not say."""
    try:
        with Admin(connector, never, ANSWER) as admin:
            return admin.offsets_kept()
    except ChronicleError:
        return None


def expires(topic: str, minutes: int) -> Notice:
    """The brokers keep commits for so long."""
    size, unit = next(one for one in UNITS if minutes >= one[0])
    span = many(minutes // size, unit)
    text = (
        f"{topic}: {span} after the last removal, at most, the brokers forget what was removed "
        "(offsets.retention.minutes), and it is seen again; delete it by then (kafka-delete-records), "
        "or raise that setting"
    )
    return Notice(EXPIRES, logging.WARNING, text, {"minutes": minutes})
