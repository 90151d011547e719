"""The states of a RabbitMQ consumer: those of 000, and how one follows another (R-000-5).

Rule (D-10): Reconnecting goes back to Connecting when the backoff is over; idle is not a transition; a stop
is possible in every state; a drain ends when all is settled or at its deadline.
"""

from __future__ import annotations

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
