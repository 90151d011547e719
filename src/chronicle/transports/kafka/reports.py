"""What the client's thread has to say: notices for the log, events for the machine.

Rule: the same trouble is told once a minute, however often it comes (K7), until it is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from chronicle.core.notice import Notice
from chronicle.transports.kafka.states import KafkaEvent

REMIND: Final = 60.0  # seconds between two words about the same trouble

POLL_FAILED: Final = "consumer_poll_failed"
COMMIT_FAILED: Final = "offset_commit_failed"
BACK: Final = "kafka.brokers_back"
ASSIGNED: Final = "kafka.partitions_assigned"
REVOKED: Final = "kafka.partitions_revoked"
LOST: Final = "kafka.partitions_lost"
DELETED: Final = "kafka.records_deleted"
HELD_BACK: Final = "kafka.partition_held_back"


class Reports:
    """Takes what the client's thread sees; the pump takes it out, and is woken for it."""

    def __init__(self, notices: deque[Notice], wake: Callable[[], None]) -> None:
        self.happened: deque[KafkaEvent] = deque()  # for the machine, which is the pump's
        self.wake = wake
        self._notices = notices
        self._told: dict[str, float] = {}  # what was told, and when

    def say(self, event: str, level: int, text: str, **facts: Any) -> None:
        """One line for the log."""
        self._notices.append(Notice(event, level, text, facts))
        self.wake()

    def trouble(self, event: str, level: int, text: str, which: object = "", **facts: Any) -> None:
        """The same for something that may come again and again."""
        now, key = monotonic(), f"{event} {which}"
        if now - self._told.get(key, -REMIND) >= REMIND:
            self._told[key] = now
            self.say(event, level, text, **facts)

    def over(self, event: str, which: object = "") -> None:
        """That trouble is over: when it comes again it is told at once."""
        self._told.pop(f"{event} {which}", None)

    def partitions(self, event: str, level: int, text: str, numbers: Sequence[int], held: int) -> None:
        """What became of these partitions, and whether this consumer still has any (R-002-38)."""
        if numbers:
            named = ", ".join(map(str, sorted(numbers)))
            word = "partition" if len(numbers) == 1 else "partitions"
            facts = {"partitions": sorted(numbers), "consumer_count": int(held > 0)}
            self.say(event, level, f"{word} {named}: {text}", **facts)
