"""What is measured, and what is wanted of it: the cases as data.

Rule 1: a peer stands in the cases whose kind of handler is its own: async ones in async cases, those with
        threads in sync cases; the reference in both. At Redis and Kafka everybody stands in both, and
        FastStream with an async handler: with a sync one it is slower still.
Rule 2: a wish compares with the best of those it names. Rates and CPU compare with every Python peer,
        libraries too; start and memory with frameworks, because a bare library does less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from benchmarks.peers import (
    AIO_PIKA,
    AIO_PIKA_ITERATOR,
    BARE_KAFKA,
    BARE_REDIS,
    CELERY,
    CHRONICLE,
    CHRONICLE_KAFKA,
    CHRONICLE_REDIS,
    DRAMATIQ,
    FASTSTREAM,
    FASTSTREAM_KAFKA,
    FASTSTREAM_KAFKA_FIRST,
    FASTSTREAM_REDIS,
    JSON_LINES,
    LIMIT,
    LIVE,
    PIKA_THREADS,
    PROCA,
    SILENT,
    SUBSCRIBE,
    SUBSCRIBE_ASYNC,
    UNORDERED,
    Handler,
    Peer,
    Where,
    backlog,
    behind_held,
)


class Metric(StrEnum):
    """What is compared; the values are properties of a Sample."""

    RATE = "rate"
    CPU = "cpu"
    PEAK = "peak"
    FIRST = "first"

    @property
    def more_is_better(self) -> bool:
        return self is Metric.RATE


@dataclass(frozen=True, slots=True)
class Want:
    """One's figure divided by the best of theirs: at least `bound` for rates, else at most."""

    metric: Metric
    to: tuple[Peer, ...]
    bound: float
    of: Peer = CHRONICLE

    def met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.metric.more_is_better else ratio <= self.bound


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency of a case, with as many messages as give everybody a second or more of work."""

    concurrency: int
    messages: int
    wants: tuple[Want, ...] = ()
    also: tuple[Peer, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison. With `steps` it is one long run, looked at so many times on the way.

    `answer` is how many seconds the server takes that handlers with HTTP call.
    """

    name: str
    about: str
    handler: Handler
    contenders: tuple[Peer, ...]
    points: tuple[Point, ...]
    sample: str = "action-plain.json"
    keys: str = ""
    repeats: int = 3
    steps: int = 0
    answer: float = 0.0

    def ceiling(self, concurrency: int) -> float:
        """Messages a second that nobody can exceed, because each takes so long whoever handles it."""
        wait = self.answer or self.handler.wait
        return concurrency / wait if wait else math.inf


REFERENCE: Final = (PROCA,)
FRAMEWORKS: Final = (FASTSTREAM, DRAMATIQ, CELERY)
PYTHON: Final = (AIO_PIKA, PIKA_THREADS, *FRAMEWORKS)
ASYNC: Final = (CHRONICLE, PROCA, AIO_PIKA, FASTSTREAM)
SYNC: Final = (CHRONICLE, PROCA, PIKA_THREADS, DRAMATIQ, CELERY)
ALL: Final = (CHRONICLE, PROCA, *PYTHON)
LOOPS: Final = (SUBSCRIBE, SUBSCRIBE_ASYNC)
REDIS: Final = (CHRONICLE_REDIS, FASTSTREAM_REDIS, BARE_REDIS)
FASTSTREAM_AT_KAFKA: Final = (FASTSTREAM_KAFKA, FASTSTREAM_KAFKA_FIRST)
KAFKA: Final = (CHRONICLE_KAFKA, UNORDERED, *FASTSTREAM_AT_KAFKA, BARE_KAFKA)


SLOWLY: Final = "The same, and the server takes 20 ms to answer."


def _rates(reference: float, python: float) -> tuple[Want, ...]:
    """To the reference, to the best framework, and, more than was asked for, to bare clients as well."""
    return (
        Want(Metric.RATE, REFERENCE, reference),
        Want(Metric.RATE, FRAMEWORKS, python),
        Want(Metric.RATE, PYTHON, python),
    )


def _http(
    name: str,
    about: str,
    handler: Handler,
    contenders: tuple[Peer, ...],
    reference: float,
    answer: float = 0.0,
) -> Case:
    """A real request for every message.

    With ten at once and 20 ms for an answer everybody waits: there only what the process uses is compared.
    """
    rate = Want(Metric.RATE, REFERENCE, reference)
    cpu = Want(Metric.CPU, REFERENCE, round(1 / reference, 2))
    points = (
        (Point(10, 1_500, (Want(Metric.RATE, REFERENCE, 0.95), cpu)), Point(50, 6_000, (rate, cpu)))
        if answer
        else (Point(10, 8_000, (rate, cpu)), Point(50, 8_000, (rate, cpu)))
    )
    return Case(name, about, handler, contenders, (*points, Point(100, 8_000, (rate, cpu))), answer=answer)


def _redis_rates(framework: float, bare: float | None = None) -> tuple[Want, ...]:
    """To FastStream, and to a loop that reads as many entries at once as chronicle may hold."""
    wants = (Want(Metric.RATE, (FASTSTREAM_REDIS,), framework, of=CHRONICLE_REDIS),)
    return wants if bare is None else (*wants, Want(Metric.RATE, (BARE_REDIS,), bare, of=CHRONICLE_REDIS))


def _kafka_rates(framework: float, bare: float | None = None) -> tuple[Want, ...]:
    """To FastStream however it is set up, to a bare loop, and what the order of a key may cost."""
    wants = (
        Want(Metric.RATE, FASTSTREAM_AT_KAFKA, framework, of=CHRONICLE_KAFKA),
        Want(Metric.RATE, (UNORDERED,), 0.75, of=CHRONICLE_KAFKA),
    )
    return wants if bare is None else (*wants, Want(Metric.RATE, (BARE_KAFKA,), bare, of=CHRONICLE_KAFKA))


def _flat(short: Peer, long: Peer) -> tuple[Want, ...]:
    """The rate has a share of the broker's in it, what it costs the process has not."""
    return (Want(Metric.RATE, (short,), 0.8, of=long), Want(Metric.CPU, (short,), 1.25, of=long))


# A long queue beside a short one, in every way in which its length could be felt. A run ends before the short
# one is empty: with --until-empty the process would end with it.
HANDLED, SHORT, LONG = 8_000, 10_000, 100_000
BACKLOGS: Final = tuple(
    (backlog(where, SHORT, *arguments), backlog(where, LONG, *arguments))
    for where, *arguments in (
        (Where.RABBITMQ,),
        (Where.EMBEDDED,),
        (Where.EMBEDDED, "--until-empty"),
        (Where.REDIS,),
    )
)
# At Redis, longer runs and a stricter wish: there every entry stays in the stream, and who claims entries
# must walk through a list of those that are pending.
STREAM_HANDLED, STREAM, LONG_STREAM = 60_000, 65_000, 650_000
FLAT: Final = (backlog(Where.REDIS, STREAM), backlog(Where.REDIS, LONG_STREAM), behind_held(STREAM))
# At Kafka a run ends with the commit that reaches its mark, one of five a second: a short one says little.
TOPIC: Final = 400_000
FLAT_TOPICS: Final = (backlog(Where.KAFKA, STREAM), backlog(Where.KAFKA, LONG_STREAM))


CASES: Final = (
    Case(
        "async-noop",
        "An async handler that does nothing.",
        Handler.ASYNC_NOOP,
        ASYNC,
        (
            Point(1, 5_000, _rates(0.95, 2)),
            Point(
                10,
                12_000,
                (*_rates(1.5, 4), Want(Metric.CPU, REFERENCE, 0.6), Want(Metric.CPU, PYTHON, 0.25)),
            ),
            Point(50, 20_000, (*_rates(1.8, 4), Want(Metric.RATE, (LIMIT,), 0.6)), also=(LIMIT,)),
        ),
    ),
    Case(
        "sync-noop",
        "A sync handler that does nothing.",
        Handler.SYNC_NOOP,
        SYNC,
        (
            Point(1, 5_000, _rates(0.95, 2)),
            Point(10, 12_000, _rates(1.2, 3)),
            Point(50, 20_000, _rates(1.3, 3)),
        ),
    ),
    Case(
        "async-wait",
        "An async handler that waits 5 ms: a CRM that answers quickly. (The limit does not wait.)",
        Handler.ASYNC_WAIT,
        ASYNC,
        (
            Point(10, 5_000),
            Point(50, 15_000, _rates(1.1, 2.5)),
            Point(100, 20_000, _rates(1.4, 3.5)),
            Point(500, 30_000, (*_rates(2, 7), Want(Metric.RATE, (LIMIT,), 0.6)), also=(LIMIT,)),
        ),
    ),
    Case(
        "sync-wait",
        "A sync handler that waits 5 ms.",
        Handler.SYNC_WAIT,
        SYNC,
        (Point(50, 12_000, _rates(1.0, 2.5)), Point(100, 16_000, _rates(0.95, 3))),
    ),
    _http(
        "http-async",
        "An async handler that posts every message to an HTTP server on this machine, which answers at once; "
        "aiohttp, and Node's own fetch.",
        Handler.ASYNC_HTTP,
        ASYNC,
        2.5,
    ),
    _http("http-async-20ms", SLOWLY, Handler.ASYNC_HTTP, ASYNC, 2.5, answer=0.02),
    _http(
        "http-sync",
        "A sync handler that posts every message to an HTTP server on this machine, which answers at once; "
        "urllib3, and Node's own fetch.",
        Handler.SYNC_HTTP,
        SYNC,
        1.5,
    ),
    _http("http-sync-20ms", SLOWLY, Handler.SYNC_HTTP, SYNC, 1.5, answer=0.02),
    Case(
        "encrypted",
        "Sealed personal data opened, then an async handler that does nothing.",
        Handler.ASYNC_NOOP,
        (CHRONICLE, PROCA),
        (Point(10, 6_000, (Want(Metric.RATE, REFERENCE, 6),)),),
        sample="action-encrypted.json",
        keys="keys.json",
    ),
    Case(
        "subscribe",
        "A loop of the program's own that acknowledges every message at once, with a window of twice c.",
        Handler.SYNC_NOOP,
        (*LOOPS, AIO_PIKA_ITERATOR),
        tuple(
            Point(
                concurrency,
                messages,
                tuple(Want(Metric.RATE, (AIO_PIKA_ITERATOR,), 3, of=ours) for ours in LOOPS),
            )
            for concurrency, messages in ((10, 12_000), (50, 20_000))
        ),
        repeats=5,
    ),
    Case(
        "startup",
        "From exec to the first message acknowledged.",
        Handler.ASYNC_NOOP,
        ALL,
        (Point(10, 400, (Want(Metric.FIRST, REFERENCE, 1.5), Want(Metric.FIRST, FRAMEWORKS, 1.0))),),
        repeats=5,
    ),
    Case(
        "memory",
        "The most memory that was resident, over all processes.",
        Handler.ASYNC_NOOP,
        ALL,
        (Point(50, 12_000, (Want(Metric.PEAK, REFERENCE, 0.6), Want(Metric.PEAK, FRAMEWORKS, 1.0))),),
    ),
    Case(
        "logs",
        "What telling costs: warnings only (as everywhere else here), errors only, a JSON line for every "
        "message into a file, and the live view at a terminal.",
        Handler.ASYNC_NOOP,
        (CHRONICLE, SILENT, JSON_LINES, LIVE),
        (Point(50, 30_000, (Want(Metric.RATE, (SILENT,), 0.95),)),),
    ),
    Case(
        "backlog",
        "chronicle alone, over the same number of messages of a short and of a long queue: what waits behind "
        "them must not be felt.",
        Handler.ASYNC_NOOP,
        tuple(peer for pair in BACKLOGS for peer in pair),
        (
            Point(
                10,
                HANDLED,
                tuple(want for short, long in BACKLOGS for want in _flat(short, long)),
            ),
        ),
    ),
    Case(
        "redis-async",
        "A stream of a Redis of our own, read in a group; an async handler that does nothing.",
        Handler.ASYNC_NOOP,
        REDIS,
        (Point(10, 40_000, _redis_rates(8, 0.6)), Point(50, 60_000, _redis_rates(12, 0.6))),
        repeats=5,
    ),
    Case(
        "redis-sync",
        "The same with a sync handler.",
        Handler.SYNC_NOOP,
        REDIS,
        (Point(10, 40_000, _redis_rates(6)),),
        repeats=5,
    ),
    Case(
        "redis-flat",
        "chronicle alone, over the same number of entries: of a stream, of one ten times as long, and of one "
        "whose group has a hundred thousand entries pending that another consumer was given just before.",
        Handler.ASYNC_NOOP,
        FLAT,
        (
            Point(
                10,
                STREAM_HANDLED,
                tuple(Want(Metric.CPU, FLAT[:1], 1.15, of=other) for other in FLAT[1:]),
            ),
        ),
        repeats=5,
    ),
    Case(
        "kafka-async",
        "A topic with three partitions and a thousand keys in a Kafka of our own, read in a group; an async "
        "handler that does nothing.",
        Handler.ASYNC_NOOP,
        KAFKA,
        (Point(10, TOPIC, _kafka_rates(8)), Point(50, TOPIC, _kafka_rates(10, 0.2))),
        repeats=5,
    ),
    Case(
        "kafka-sync",
        "The same with a sync handler.",
        Handler.SYNC_NOOP,
        KAFKA,
        (Point(10, TOPIC, _kafka_rates(6)),),
        repeats=5,
    ),
    Case(
        "kafka-flat",
        "chronicle alone, over the same number of records: of a topic, and of one ten times as long.",
        Handler.ASYNC_NOOP,
        FLAT_TOPICS,
        (Point(10, STREAM_HANDLED, _flat(*FLAT_TOPICS)),),
    ),
    Case(
        "leak",
        "One million messages in one run: memory and cost must stay flat.",
        Handler.ASYNC_NOOP,
        (CHRONICLE,),
        (Point(50, 1_000_000),),
        repeats=1,
        steps=10,
    ),
)


def resized(case: Case, messages: int | None, repeats: int | None) -> Case:
    """The case with other sizes, for a quick look."""
    points = tuple(replace(point, messages=messages or point.messages) for point in case.points)
    return replace(case, points=points, repeats=repeats or case.repeats)
