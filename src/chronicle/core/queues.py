"""What is true of any queue, apart from plans for one: the types there are, and the limits of a broker.

The command line needs this for every command, and core/topology.py, which plans, only for a few.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MAX_NAME: Final = 255  # bytes; AMQP's limit
SHORTEST: Final = 0.001  # seconds; brokers count in milliseconds


class QueueType(StrEnum):
    """The type of a RabbitMQ queue."""

    CLASSIC = "classic"
    QUORUM = "quorum"


def dead_letter_queue(queue: str) -> str:
    """Where the dead letters of a queue are kept (R-003-6)."""
    return f"{queue}.dlq"
