"""X7: large bodies take turns, so that what is decoded at once is bounded; nothing else waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.core.settlement import Settlement
from chronicle.workers.base import make_workers
from chronicle.workers.loader import look_at
from chronicle.workers.turns import BUDGET, LARGE, TurnTaking
from support.waiting import wait_for
from support.workers import PATIENCE, collect, make_mailbox


class Scale:
    """What the syncers that run now were given, in bytes; they end when they may."""

    def __init__(self, *, free: bool = True) -> None:
        self.free = threading.Event()
        if free:
            self.free.set()
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.begun: list[int] = []

    def begin(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.begun.append(message["n"])
            self.now += len(message["x"]) if len(message["x"]) > LARGE else 0
            self.most = max(self.most, self.now)

    def end(self, message: dict[str, Any]) -> bool:
        with self._lock:
            self.now -= len(message["x"]) if len(message["x"]) > LARGE else 0
        return True

    def sync(self, message: dict[str, Any]) -> bool:
        self.begin(message)
        assert self.free.wait(PATIENCE)
        threading.Event().wait(0.002)
        return self.end(message)

    async def sync_async(self, message: dict[str, Any]) -> bool:
        self.begin(message)
        while not self.free.is_set():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.002)
        return self.end(message)


both = pytest.mark.parametrize("kind", ["sync", "sync_async"])


@contextmanager
def working(
    syncer: Callable[..., Any], concurrency: int, schema: Schema = Schema.JSON
) -> Iterator[TurnTaking]:
    pipeline = Pipeline(schema, max_body=4 * BUDGET)
    workers = make_workers(look_at(syncer, "my:syncer"), pipeline, Policy(), concurrency, make_mailbox())
    workers.start()
    yield workers
    assert workers.stop(PATIENCE)


def delivery(number: int, size: int) -> Delivery:
    return Delivery(b'{"n":%d,"x":"%s"}' % (number, b"x" * size), queue="q", transport="t")


@both
def test_X7_large_bodies_are_decoded_only_so_many_at_a_time(kind: str) -> None:
    scale = Scale(free=False)
    size = BUDGET // 3
    with working(getattr(scale, kind), 12) as workers:
        workers.submit([delivery(n, size) for n in range(12)])
        wait_for(lambda: len(scale.begun) == 2, PATIENCE, "two at once")
        scale.free.set()
        done = collect(workers, 12)
    assert sorted(scale.begun) == list(range(12))
    assert len({id(one.delivery) for one in done}) == 12
    assert size < scale.most <= BUDGET


@both
def test_X7_one_that_is_larger_than_all_turns_goes_alone(kind: str) -> None:
    scale = Scale()
    with working(getattr(scale, kind), 4) as workers:
        workers.submit([delivery(n, BUDGET + 1) for n in range(3)])
        collect(workers, 3)
    assert scale.most == BUDGET + 1


@both
def test_what_is_not_large_never_waits_for_a_turn(kind: str) -> None:
    scale = Scale(free=False)
    with working(getattr(scale, kind), 4) as workers:
        workers.submit([delivery(0, BUDGET), delivery(1, BUDGET), delivery(2, 10), delivery(3, 10)])
        wait_for(lambda: len(scale.begun) == 3, PATIENCE, "three that run")
        assert set(scale.begun) == {0, 2, 3}
        scale.free.set()
        collect(workers, 4)
    assert 1 in scale.begun


@both
def test_what_waits_for_its_turn_is_taken_back_and_never_starts(kind: str) -> None:
    """D-17: after a discard no syncer starts on it."""
    scale = Scale(free=False)
    given = [delivery(n, BUDGET) for n in range(3)]
    with working(getattr(scale, kind), 4) as workers:
        workers.submit(given)
        wait_for(lambda: bool(scale.begun), PATIENCE, "the first")
        assert workers.discard() == given[1:]
        scale.free.set()
        collect(workers, 1)
        # The turns are free again.
        workers.submit([delivery(7, BUDGET)])
        collect(workers, 1)
    assert scale.begun == [0, 7]


@pytest.mark.parametrize(("concurrency", "schema"), [(1, Schema.JSON), (4, Schema.RAW)])
def test_with_one_worker_or_without_decoding_nothing_is_kept_back(concurrency: int, schema: Schema) -> None:
    """One worker keeps the order of the queue; a body that is not decoded takes no more than it is."""
    seen: list[object] = []

    def sync(message: Any) -> bool:
        seen.append(len(message) if schema is Schema.RAW else message["n"])
        return True

    with working(sync, concurrency, schema) as workers:
        workers.submit([delivery(0, BUDGET), delivery(1, BUDGET), delivery(2, 10)])
        assert not workers._waiting
        collect(workers, 3)
    assert len(seen) == 3
    if concurrency == 1:
        assert seen == [0, 1, 2]


@both
def test_any_mix_is_done_once_or_taken_back_once(kind: str) -> None:
    luck, scale = Random(11), Scale()
    given: list[Delivery] = []
    back: list[Delivery] = []
    done: list[Settlement] = []
    with working(getattr(scale, kind), 3) as workers:
        for _ in range(60):
            sizes = luck.choices([10, LARGE, LARGE + 1, BUDGET // 2, BUDGET + 1], k=luck.randint(1, 3))
            batch = [delivery(len(given) + n, size) for n, size in enumerate(sizes)]
            given += batch
            workers.submit(batch)
            done += workers.take()
            if luck.random() < 0.1:
                back += workers.discard()
        done += collect(workers, len(given) - len(back) - len(done))
    ended = [id(one.delivery) for one in done] + [id(one) for one in back]
    assert sorted(ended) == sorted(map(id, given))
    assert workers._out == 0
