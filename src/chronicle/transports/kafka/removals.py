"""What is said when records are removed, that is settled for a group that nobody is a member of.

Rule: such a group remembers as much as fits into the metadata of its commits, and for as long as the brokers
      keep them. What it has forgotten is seen again, and would be redriven again.
"""

from __future__ import annotations

import logging
from typing import Final

from chronicle.core.notice import Notice
from chronicle.core.words import many

FORGOTTEN: Final = "kafka.removal_forgotten"
EXPIRES: Final = "kafka.removal_expires"
HOUR: Final = 60  # minutes
DAY: Final = 24 * HOUR


def forgotten(topic: str, count: int) -> Notice:
    """There is no room to remember these."""
    text = (
        f"{topic}: removed messages lie too far apart to be remembered one by one; "
        "the newest of them will be seen again, unless all older ones are removed as well"
    )
    return Notice(FORGOTTEN, logging.WARNING, text, {"count": count})


def expires(topic: str, minutes: int) -> Notice:
    """The brokers keep commits for so long."""
    span = many(minutes // DAY, "day") if minutes >= DAY else f"{minutes / HOUR:.2g} h"
    text = (
        f"{topic}: {span} after the last removal (offsets.retention.minutes) the brokers forget what was "
        "removed, and it is seen again; delete it by then (kafka-delete-records), or raise that setting"
    )
    return Notice(EXPIRES, logging.WARNING, text, {"minutes": minutes})
