"""Running a syncer over messages in a test: the real pipeline, policy and engine, no broker.

    from chronicle.testing import run_syncer

    def test_sends_the_receipt():
        result = run_syncer(my_crm.sync, [{"schema": "proca:action:2", "actionId": 1, …}])
        assert result.acked == 1

Bytes are taken as they are, anything else becomes JSON. A failing message gets its second try and ends in
`dead_letters`, as it would in production. What the syncer's constructor, `__enter__` or `__exit__` raises is
raised here, as it is.

`MemoryBroker` stands in for the URL of a program that uses `run` or `subscribe`:

    broker = MemoryBroker()
    broker.publish("orders", {"id": 1})
    with subscribe(broker, "orders", RoutingKey("orders", Order), until_empty=True) as orders:
        ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.outcome import Fatal, Outcome
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import OnException, OnInvalid, Policy, parse_on_failure
from chronicle.core.settlement import Settlement
from chronicle.engine.job import Bounds, Job
from chronicle.engine.runner import Runner
from chronicle.errors import SettingError, SyncerError
from chronicle.telemetry.events import Silent
from chronicle.telemetry.redaction.traces import their_part
from chronicle.transports.broker import Broker, UrlFacts
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.memory_broker import MemoryQueue, QueueTransport
from chronicle.workers.loader import look_at

__all__ = ["DeadLettered", "MemoryBroker", "Result", "run_syncer"]


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A message that ended in the dead letters, and why."""

    body: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the messages."""

    acked: int
    requeued: int  # sent back for another try
    dropped: int
    dead_letters: tuple[DeadLettered, ...]
    outcomes: tuple[Outcome, ...]  # one for every try, in the order they ended
    fatal: str  # why the process would have ended; empty if it would not

    @property
    def ok(self) -> bool:
        """Every message was acknowledged."""
        return not self.dead_letters and not self.dropped and not self.fatal


class _Witness(Silent):
    """Remembers every outcome."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def settled(self, batch: Sequence[Settlement]) -> None:
        self.outcomes.extend(settlement.outcome for settlement in batch)


def run_syncer(
    syncer: Callable[..., Any],
    messages: Iterable[Any],
    *,
    schema: str = "proca",
    keys: str | os.PathLike[str] | None = None,
    on_failure: str = "requeue-once",
    on_invalid: str = "requeue-once",
    on_exception: str = "exit",
    concurrency: int = 1,
    queue: str = "test",
) -> Result:
    """Run a syncer (function, async function or class) over messages, and return what became of them.

    The arguments are those of `chronicle consume`, without delays between the tries of `retry:N`; `keys` is a
    key store's file or its JSON. `messages` is a list, or anything else that gives one message after the
    other: a single message, which is a dict, text or bytes, is a TypeError.
    """
    _refuse_a_single(messages)
    try:
        failure, tries = parse_on_failure(on_failure)
    except ValueError as error:
        raise ValueError(f"on_failure takes {error}, not {on_failure!r}") from None
    store = None
    if keys:
        from chronicle.proca.keystore import KeyStore  # loads NaCl

        store = KeyStore.load(os.fspath(keys))
    witness = _Witness()
    dead: list[DeadLettered] = []
    transport = MemoryTransport(
        [Delivery(_body(message), queue=queue, transport="memory") for message in messages],
        on_dead_letter=lambda s: dead.append(DeadLettered(s.delivery.body, s.verdict.reason)),
    )
    name = getattr(syncer, "__qualname__", type(syncer).__name__)
    job = Job(
        look_at(syncer, name),
        Pipeline(Schema(schema), store),
        Policy(
            failure,
            OnInvalid(on_invalid),
            OnException(on_exception),
            max_attempts=tries,
            retry_delays=(0.0,),
            rehearsal=True,
        ),
        concurrency,
        2 * concurrency,
        Bounds(until_empty=True),
    )
    runner = Runner(job, transport, witness)
    try:
        ending = runner.run()
    except SyncerError as problem:
        if problem.__cause__ is None:
            raise
        own: BaseException | None = problem.__cause__
    else:
        own = ending.unclosed if not any(isinstance(outcome, Fatal) for outcome in witness.outcomes) else None
    if own is not None:  # not while another error is handled, which would be in its traceback
        raise own.with_traceback(their_part(own.__traceback__))
    counters = ending.counters
    return Result(
        acked=counters.ack,
        requeued=counters.requeued + counters.retried,
        dropped=counters.dropped,
        dead_letters=tuple(dead),
        outcomes=tuple(witness.outcomes),
        fatal=ending.reason if ending.code else "",
    )


def _refuse_a_single(messages: object) -> None:
    if isinstance(messages, Mapping | str | bytes | bytearray) or not isinstance(messages, Iterable):
        given = type(messages).__name__
        raise TypeError(
            f"messages must be a list of messages, not a {given}: for a single one write [message]"
        )


def _body(message: Any) -> bytes:
    return message if isinstance(message, bytes) else orjson.dumps(message)


class MemoryBroker:
    """Queues in memory, in place of a URL: `subscribe(broker, …)`, `run(broker, …)`.

    A queue is there as soon as somebody names it, and has whatever exchange, TTL and dead letters it is
    declared with: messages are published to the queue itself. Further tries come at once, unless `delays`.
    """

    def __init__(self, *, delays: bool = False) -> None:
        self._delays = delays
        self._queues: dict[str, MemoryQueue] = {}

    def publish(self, queue: str, *messages: Any, headers: Mapping[str, Any] | None = None) -> None:
        """Put messages on a queue: bytes as they are, anything else as JSON."""
        envelope = Envelope(dict(headers or {}))
        self._queue(queue).put(
            [
                Delivery(_body(message), queue=queue, transport="memory", envelope=envelope)
                for message in messages
            ]
        )

    def waiting(self, queue: str) -> int:
        """How many messages wait in a queue; what a consumer holds is not counted."""
        return len(self._queue(queue))

    def dead_letters(self, queue: str) -> tuple[DeadLettered, ...]:
        """What has died in a queue, and why, in that order."""
        return tuple(
            DeadLettered(letter.delivery.body, letter.verdict.reason) for letter in self._queue(queue).dead
        )

    def cut(self, queue: str) -> int:
        """Break the connection of everybody who consumes this queue; how many there were."""
        return self._queue(queue).cut()

    @property
    def record(self) -> Broker:
        """What chronicle asks a broker for."""
        return Broker(
            title="the broker in memory",
            schemes=("memory",),
            example="",
            states=dict,
            check_url=lambda _url, _settings, _choices: UrlFacts(),
            transport=lambda connector: QueueTransport(self._queue(connector.queue)),
            publisher=_only_consumed,
            reader=_only_consumed,
            has_queue=lambda _connector, _stopping: True,
            plan=_only_consumed,
            declare=_only_consumed,
        )

    def _queue(self, name: str) -> MemoryQueue:
        return self._queues.setdefault(name, MemoryQueue(delays=self._delays))


def _only_consumed(*_: object) -> NoReturn:
    raise SettingError("the broker in memory is only consumed", "publish to it with its own publish")
