"""The transition tables, one per kind of broker. `docs/states.md` is drawn from them.

Rule 1: the states are those of the source documents (000 for RabbitMQ); a queue in a file or in memory has
        none of a broker's, so it has a small table of its own. Events belong to their table.
Rule 2 (D-10): Reconnecting goes back to Connecting when the backoff is over; idle is not a transition;
        a stop is possible in every state; a drain ends when all is settled or at its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from chronicle.core.machine import Table


class Rabbit(StrEnum):
    """States of a RabbitMQ consumer (R-000-5)."""

    CONNECTING = "Connecting"
    DECLARING_QOS = "DeclaringQoS"
    CONSUMING = "Consuming"
    DELIVERING = "Delivering"
    RECONNECTING = "Reconnecting"
    SHUTTING_DOWN = "ShuttingDown"
    DRAINING_QUEUE = "DrainingQueue"
    DISCONNECTED = "Disconnected"


class RabbitEvent(StrEnum):
    """What can happen to a RabbitMQ consumer."""

    CONNECT = "connect"
    OPEN = "open"
    QOS_OK = "qos_ok"
    CONSUME_OK = "consume_ok"
    CANCELLED = "cancelled"
    FAILED = "failed"
    BACKOFF_EXPIRED = "backoff_expired"
    STOP = "stop"
    CANCEL_OK = "cancel_ok"
    ALL_SETTLED = "all_settled"
    DEADLINE = "deadline"


RABBIT: Final[Table] = {
    (Rabbit.DISCONNECTED, RabbitEvent.CONNECT): Rabbit.CONNECTING,
    (Rabbit.CONNECTING, RabbitEvent.OPEN): Rabbit.DECLARING_QOS,
    (Rabbit.CONNECTING, RabbitEvent.FAILED): Rabbit.RECONNECTING,
    (Rabbit.DECLARING_QOS, RabbitEvent.QOS_OK): Rabbit.CONSUMING,
    (Rabbit.DECLARING_QOS, RabbitEvent.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONSUMING, RabbitEvent.CONSUME_OK): Rabbit.DELIVERING,
    (Rabbit.CONSUMING, RabbitEvent.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONSUMING, RabbitEvent.CANCEL_OK): Rabbit.DRAINING_QUEUE,
    (Rabbit.DELIVERING, RabbitEvent.CANCELLED): Rabbit.RECONNECTING,
    (Rabbit.DELIVERING, RabbitEvent.FAILED): Rabbit.RECONNECTING,
    (Rabbit.RECONNECTING, RabbitEvent.BACKOFF_EXPIRED): Rabbit.CONNECTING,
    (Rabbit.RECONNECTING, RabbitEvent.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONNECTING, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DECLARING_QOS, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.CONSUMING, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DELIVERING, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.RECONNECTING, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DISCONNECTED, RabbitEvent.STOP): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, RabbitEvent.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.SHUTTING_DOWN, RabbitEvent.CANCEL_OK): Rabbit.DRAINING_QUEUE,
    (Rabbit.SHUTTING_DOWN, RabbitEvent.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, RabbitEvent.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, RabbitEvent.DEADLINE): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, RabbitEvent.STOP): Rabbit.DRAINING_QUEUE,
    (Rabbit.DRAINING_QUEUE, RabbitEvent.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, RabbitEvent.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, RabbitEvent.DEADLINE): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, RabbitEvent.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, RabbitEvent.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, RabbitEvent.DEADLINE): Rabbit.DISCONNECTED,
}


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

TABLES: Final[Mapping[str, Table]] = {"RabbitMQ": RABBIT, "The embedded queue": EMBEDDED}
