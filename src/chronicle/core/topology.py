"""What a queue needs around it: dead-letter exchange and queue, retry queues. Plans, and makes nothing.

The defaults are those of the design (003): dead letters on, `<exchange>.dlx` and `<queue>.dlq`, everything
durable, no TTL, five attempts.

    plan("orders", QueueOptions(exchange="shop", routing_key="order.*", ttl=300.0))

Rule 1: a plan lists things in the order in which they are made: what is pointed at comes before what points
        to it, and the main queue is bound last, so no message arrives before its dead letters are kept.
Rule 2: one retry queue per delay, because a TTL expires only at the head of a queue (RB12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from chronicle.core.units import format_duration

DEFAULT_EXCHANGE: Final = ""


class QueueType(StrEnum):
    """The kind of a RabbitMQ queue."""

    CLASSIC = "classic"
    QUORUM = "quorum"


@dataclass(frozen=True, slots=True)
class Enabled:
    """Dead letters are kept: by which exchange and under which routing key, made from the names in use."""

    exchange: Callable[[str], str] = "{}.dlx".format
    routing_key: Callable[[str], str] = "{}.dlq".format


@dataclass(frozen=True, slots=True)
class Disabled:
    """Dead letters are dropped by the broker."""


DeadLetterPolicy: TypeAlias = Enabled | Disabled


@dataclass(frozen=True, slots=True)
class MaxAttempts:
    """So many tries, then the dead letters."""

    attempts: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError("MaxAttempts takes a whole number of at least 1")


RetryPolicy: TypeAlias = MaxAttempts | None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """One queue's wishes; everything has the default of the design."""

    exchange: str = DEFAULT_EXCHANGE  # the main exchange; the default one needs no binding
    routing_key: str = ""  # of the main binding; empty: the queue's name
    durable: bool = True
    ttl: float | None = None  # seconds
    retry: RetryPolicy = field(default_factory=MaxAttempts)
    retry_delays: tuple[float, ...] = ()  # seconds; each makes a retry queue
    dead_letter: DeadLetterPolicy = field(default_factory=Enabled)
    queue_type: QueueType = QueueType.CLASSIC


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that must be there; one that somebody else owns may be of any kind."""

    name: str
    kind: str = "topic"
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that must be there, with exactly these arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """A way from an exchange to a queue."""

    exchange: str
    queue: str
    routing_key: str


Step: TypeAlias = Exchange | Queue | Binding


def plan(queue: str, options: QueueOptions) -> tuple[Step, ...]:
    """Everything this queue needs, in the order in which it is made (R-003-26 to 30)."""
    steps: list[Step] = []
    arguments: dict[str, Any] = {}
    if options.queue_type is QueueType.QUORUM:
        arguments["x-queue-type"] = "quorum"
    if isinstance(options.dead_letter, Enabled):
        exchange = options.dead_letter.exchange(options.exchange or queue)
        routing_key = options.dead_letter.routing_key(queue)
        dead_letters = dead_letter_queue(queue)
        steps += [
            Exchange(exchange),
            Queue(dead_letters, dict(arguments)),
            Binding(exchange, dead_letters, routing_key),
        ]
        if options.queue_type is QueueType.QUORUM:
            # Only these two together move a dead letter with the broker's own confirmation (RB8).
            arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
        arguments |= {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": routing_key}
    if options.ttl is not None:
        arguments["x-message-ttl"] = round(options.ttl * 1000)
    steps += [retry_queue(queue, delay) for delay in dict.fromkeys(options.retry_delays)]
    steps.append(Queue(queue, arguments))
    if options.exchange:
        steps.append(Exchange(options.exchange, foreign=True))
        steps.append(Binding(options.exchange, queue, options.routing_key or queue))
    return tuple(steps)


def dead_letter_queue(queue: str) -> str:
    """Where the dead letters of a queue are kept (R-003-6)."""
    return f"{queue}.dlq"


def retry_queue_name(queue: str, delay: float) -> str:
    """`orders.retry.30s`."""
    return f"{queue}.retry.{format_duration(delay)}"


def retry_queue(queue: str, delay: float) -> Queue:
    """A queue in which a message waits for its next try and then goes back by itself (D-2)."""
    return Queue(
        retry_queue_name(queue, delay),
        {
            "x-message-ttl": round(delay * 1000),
            "x-dead-letter-exchange": DEFAULT_EXCHANGE,
            "x-dead-letter-routing-key": queue,
        },
    )
