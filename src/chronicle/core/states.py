"""The transition tables, one per kind of broker. `docs/states.md` is drawn from them.

Rule 1: the states are those of the source documents (000 for RabbitMQ; the embedded queue borrows them).
Rule 2 (D-10): Reconnecting goes back to Connecting when the backoff is over; idle is not a transition;
        a stop is possible in every state; a drain ends when all is settled or at its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from chronicle.core.machine import Event, Table


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


RABBIT: Final[Table] = {
    (Rabbit.DISCONNECTED, Event.CONNECT): Rabbit.CONNECTING,
    (Rabbit.CONNECTING, Event.OPEN): Rabbit.DECLARING_QOS,
    (Rabbit.CONNECTING, Event.FAILED): Rabbit.RECONNECTING,
    (Rabbit.DECLARING_QOS, Event.QOS_OK): Rabbit.CONSUMING,
    (Rabbit.DECLARING_QOS, Event.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONSUMING, Event.CONSUME_OK): Rabbit.DELIVERING,
    (Rabbit.CONSUMING, Event.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONSUMING, Event.CANCEL_OK): Rabbit.DRAINING_QUEUE,
    (Rabbit.DELIVERING, Event.CANCELLED): Rabbit.RECONNECTING,
    (Rabbit.DELIVERING, Event.FAILED): Rabbit.RECONNECTING,
    (Rabbit.RECONNECTING, Event.BACKOFF_EXPIRED): Rabbit.CONNECTING,
    (Rabbit.RECONNECTING, Event.FAILED): Rabbit.RECONNECTING,
    (Rabbit.CONNECTING, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DECLARING_QOS, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.CONSUMING, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DELIVERING, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.RECONNECTING, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.DISCONNECTED, Event.STOP): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, Event.STOP): Rabbit.SHUTTING_DOWN,
    (Rabbit.SHUTTING_DOWN, Event.CANCEL_OK): Rabbit.DRAINING_QUEUE,
    (Rabbit.SHUTTING_DOWN, Event.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, Event.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.SHUTTING_DOWN, Event.DEADLINE): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, Event.STOP): Rabbit.DRAINING_QUEUE,
    (Rabbit.DRAINING_QUEUE, Event.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, Event.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.DRAINING_QUEUE, Event.DEADLINE): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, Event.FAILED): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, Event.ALL_SETTLED): Rabbit.DISCONNECTED,
    (Rabbit.DISCONNECTED, Event.DEADLINE): Rabbit.DISCONNECTED,
}

TABLES: Final[Mapping[str, Table]] = {"RabbitMQ": RABBIT}
