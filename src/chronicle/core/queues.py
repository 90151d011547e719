"""What is true of any queue, apart from plans for one: the types there are, and the limits of a broker.

The command line needs this for every command, and core/topology.py, which plans, only for a few.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.core.units import format_duration
from chronicle.errors import SettingError

MAX_NAME: Final = 255  # bytes; AMQP's limit
SHORTEST: Final = 0.001  # seconds; brokers count in milliseconds


class QueueType(StrEnum):
    """The type of a RabbitMQ queue."""

    CLASSIC = "classic"
    QUORUM = "quorum"


def dead_letter_queue(queue: str) -> str:
    """Where the dead letters of a queue are kept (R-003-6)."""
    return f"{queue}.dlq"


def is_dead_letter_queue(queue: str) -> bool:
    """Whether the name is that of a queue for dead letters."""
    return queue.endswith(dead_letter_queue(""))


def retry_queue_name(queue: str, delay: float) -> str:
    """Where messages wait for their next try: `orders.retry.30s`."""
    return f"{queue}.retry.{format_duration(delay)}"


def check_dead_letters_fit(queue: str) -> None:
    """SettingError for a queue whose dead letters would be where no name reaches: in one that is too long."""
    if is_too_long(dead_letter_queue(queue)):
        room = MAX_NAME - len(dead_letter_queue(""))
        raise SettingError(
            "--queue is too long for a dead-letter queue beside it", f"its name has room for {room} bytes"
        )


def is_too_long(name: str) -> bool:
    """Whether a name has more bytes than a queue's may have."""
    return len(name.encode("utf-8", "replace")) > MAX_NAME
