"""What a queue needs around it: dead-letter exchange and queue, retry queues. Only plans.

The defaults are those of the design (003): dead letters on, `<exchange>.dlx` and `<queue>.dlq`, everything
durable, no TTL, five attempts with the retry queues they need.

    plan("orders", QueueOptions(exchange="shop", routing_key="order.*", ttl=300.0))

Rule 1: a plan lists things in the order of creation: a target comes before whatever refers to it, and the
        main queue is bound last, so no message arrives before its dead letters are kept.
Rule 2: one retry queue per delay, because a TTL expires only at the head of a queue (RB12).
Rule 3: everything is durable, except a main queue whose owner says otherwise; brokers from 4.3 on refuse
        even that (RB14, R-003-10, R-003-37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

from chronicle.core.policy import RETRY_DELAYS
from chronicle.core.queues import (
    MAX_NAME,
    SHORTEST,
    QueueType,
    dead_letter_queue,
    is_too_long,
    retry_queue_name,
)
from chronicle.errors import SettingError

DEFAULT_EXCHANGE: Final = ""


@dataclass(frozen=True, slots=True)
class Enabled:
    """Dead letters are kept: by which exchange and under which routing key, made from the names in use."""

    exchange: Callable[[str], str] = "{}.dlx".format
    routing_key: Callable[[str], str] = "{}.dlq".format
    foreign: bool = False  # the exchange is someone else's and may be of any type
    # Of the queue that keeps them; a quorum queue drops what was delivered too often (RB10).
    queue_type: QueueType = QueueType.CLASSIC


@dataclass(frozen=True, slots=True)
class Disabled:
    """The broker drops dead letters."""


DeadLetterPolicy: TypeAlias = Enabled | Disabled


class RetryPolicy:
    """What a failed message gets: MaxAttempts, or no further try."""

    __slots__ = ()
    NONE: ClassVar[None] = None  # it is dead-lettered at once


@dataclass(frozen=True, slots=True)
class MaxAttempts(RetryPolicy):
    """This many tries, then dead-letter; each delay between them has its own retry queue."""

    attempts: int = 5
    delays: tuple[float, ...] = RETRY_DELAYS  # seconds; the last one repeats

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError("MaxAttempts takes a whole number of at least 1")
        if not self.delays:
            raise ValueError("MaxAttempts takes at least one delay")
        _check_spans(self.delays)


def _check_spans(spans: tuple[float, ...]) -> None:
    if not all(SHORTEST <= span < float("inf") for span in spans):
        raise ValueError("a TTL or a retry delay takes seconds, at least 0.001")


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The options for one queue; everything has the design's default."""

    exchange: str = DEFAULT_EXCHANGE  # the main exchange; the default one needs no binding
    routing_key: str = ""  # of the main binding; empty: the queue's name
    ttl: float | None = None  # seconds
    retry: MaxAttempts | None = field(default_factory=MaxAttempts)  # None is RetryPolicy.NONE
    dead_letter: DeadLetterPolicy = field(default_factory=Enabled)
    queue_type: QueueType = QueueType.CLASSIC
    durable: bool = True  # the main queue survives a restart of the broker; what it needs always does
    only_retry: bool = False  # the queue exists and is not changed; only its retry queues are created

    def __post_init__(self) -> None:
        _check_spans(() if self.ttl is None else (self.ttl,))
        if self.queue_type is QueueType.QUORUM and not self.durable:
            raise ValueError("a quorum queue is always durable")


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that must exist; a foreign one may be of any type."""

    name: str
    kind: str = "topic"
    foreign: bool = False

    def __str__(self) -> str:
        return f"exchange {self.name}"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that must exist, with exactly these arguments; a foreign one with any, and never created."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    durable: bool | None = True  # None: the broker's own configuration decides
    foreign: bool = False

    def __str__(self) -> str:
        return f"queue {self.name}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding from an exchange to a queue."""

    exchange: str
    queue: str
    routing_key: str

    def __str__(self) -> str:
        return f"binding {self.exchange} → {self.queue}"


Step: TypeAlias = Exchange | Queue | Binding


class Done(StrEnum):
    """What became of a step."""

    MADE = "created"
    THERE = "exists"
    BOUND = "bound"  # AMQP does not say whether a binding is new


def plan(queue: str, options: QueueOptions) -> tuple[Step, ...]:
    """Everything this queue needs, in the order of creation (R-003-26 to 30).

    Raises SettingError for a name that is empty or too long.
    """
    steps = tuple(_steps(queue, options))
    for step in steps:
        match step:
            case Binding(routing_key=text) | Exchange(name=text) | Queue(name=text):
                _check_room(step, text)
    return steps


def _steps(queue: str, options: QueueOptions) -> Iterator[Step]:
    delays = () if options.retry is None else options.retry.delays
    retries = (retry_queue(queue, delay, options.queue_type) for delay in delays)
    distinct = {retry.name: retry for retry in retries}.values()
    if options.only_retry:
        yield Queue(queue, foreign=True)
        yield from distinct
        return
    arguments = _type_arguments(options.queue_type)
    if isinstance(options.dead_letter, Enabled):
        exchange = options.dead_letter.exchange(options.exchange or queue)
        routing_key = options.dead_letter.routing_key(queue)
        dead_letters = dead_letter_queue(queue)
        yield Exchange(exchange, foreign=options.dead_letter.foreign)
        yield Queue(dead_letters, _type_arguments(options.dead_letter.queue_type))
        yield Binding(exchange, dead_letters, routing_key)
        arguments |= _dead_letter_arguments(exchange, routing_key, options.queue_type)
    if options.ttl is not None:
        arguments["x-message-ttl"] = round(options.ttl * 1000)
    yield Queue(queue, arguments, options.durable)
    yield from distinct
    if options.exchange:
        yield Exchange(options.exchange, foreign=True)
        yield Binding(options.exchange, queue, options.routing_key or queue)


def _type_arguments(queue_type: QueueType) -> dict[str, Any]:
    # A classic queue has no type argument, so it matches one created before there were types.
    return {"x-queue-type": "quorum"} if queue_type is QueueType.QUORUM else {}


def _dead_letter_arguments(exchange: str, routing_key: str, queue_type: QueueType) -> dict[str, Any]:
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": routing_key}
    if queue_type is QueueType.QUORUM:
        # Only these two together move a dead letter with the broker's own confirmation (RB8).
        arguments |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    return arguments


def _check_room(step: Step, text: str) -> None:
    if not text and not isinstance(step, Binding):
        raise SettingError("an exchange or queue in the plan has an empty name", "give it a name")
    if is_too_long(text):
        raise SettingError(
            f"the {type(step).__name__.lower()} needs a name of more than {MAX_NAME} bytes",
            "choose a shorter name for the queue or the exchange",
        )


def retry_queue(queue: str, delay: float, queue_type: QueueType = QueueType.CLASSIC) -> Queue:
    """A queue in which a message waits for its next try and then goes back by itself (D-2)."""
    return Queue(
        retry_queue_name(queue, delay),
        {
            **_type_arguments(queue_type),
            **_dead_letter_arguments(DEFAULT_EXCHANGE, queue, queue_type),
            "x-message-ttl": round(delay * 1000),
        },
    )
