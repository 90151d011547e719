"""How many threads are at work, and on which CPUs: decided anew with each pulse by what it brings."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from time import sleep

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.transports.waker import Waker
from chronicle.workers.contention import FEW, PART, Contention
from chronicle.workers.handler import Handler
from chronicle.workers.loader import look_at
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.one_cpu import OneCpu
from chronicle.workers.threads import ThreadWorkers
from chronicle.workers.trial import HELD, REST, Pulse
from support.waiting import wait_for
from support.workers import PATIENCE, collect, deliveries, make_mailbox

THREADS = 4 * FEW
TOSSING = Pulse(0.25, 0.25, switches=6_000, done=500)  # on all CPUs
SHARED = Pulse(0.25, 0.24, switches=600, done=750)  # on one
FEWER = Pulse(0.25, 0.24, switches=600, done=900)  # and by few
SLOWER = Pulse(0.25, 0.02, switches=50, done=60)  # by too few
two_cpus = pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="there is one CPU, or no choice"
)


class Judged:
    """Threads that do nothing, judged by these pulses."""

    def __init__(self, *pulses: Pulse, threads: int = THREADS) -> None:
        self._gate = threading.Event()
        self._threads = [threading.Thread(target=self._gate.wait, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()
        coming = chain(pulses, repeat(pulses[-1]))
        self.most = threads
        self._contention = Contention(self._threads, lambda: next(coming), self._limit)

    def _limit(self, most: int) -> None:
        self.most = most

    def after(self, count: int) -> tuple[int, bool]:
        """How many may be at work after so many pulses, and whether all of them share one CPU."""
        for _ in range(count):
            self._contention.judge()
        return self.most, self._share()

    def _share(self) -> bool:
        return all(len(os.sched_getaffinity(thread.native_id or 0)) == 1 for thread in self._threads)

    def restored(self) -> tuple[int, bool]:
        self._contention.restore()
        return self.most, self._share()

    def end(self) -> None:
        self._contention.restore()
        self._gate.set()


@contextmanager
def judged(*pulses: Pulse, threads: int = THREADS) -> Iterator[Judged]:
    one = Judged(*pulses, threads=threads)
    try:
        yield one
    finally:
        one.end()


@two_cpus
class TestDeciding:
    def test_fewer_are_at_work_once_they_share_a_cpu_and_that_is_full(self) -> None:
        with judged(TOSSING, SHARED, FEWER) as threads:
            assert threads.after(1) == (THREADS, True)
            assert threads.after(1) == (FEW, True)
            assert threads.after(10) == (FEW, True)
            assert threads.restored() == (THREADS, False)

    def test_of_very_many_more_than_a_few_are_left(self) -> None:
        many = 2 * FEW * PART
        with judged(TOSSING, SHARED, FEWER, threads=many) as threads:
            assert threads.after(2) == (2 * FEW, True)

    def test_with_too_few_all_are_at_work_again_at_once_and_stay_on_their_cpu(self) -> None:
        with judged(TOSSING, SHARED, SLOWER, SHARED) as threads:
            assert threads.after(2) == (FEW, True)
            assert threads.after(1) == (THREADS, True)
            assert threads.after(REST) == (THREADS, True)
            assert threads.after(1) == (FEW, True)

    def test_threads_that_wait_for_something_else_are_needed(self) -> None:
        waiting = Pulse(0.25, 0.2, switches=600, done=750)  # a fifth of that CPU is free
        with judged(TOSSING, waiting) as threads:
            assert threads.after(10) == (THREADS, True)

    def test_what_was_before_is_measured_with_all_of_them(self) -> None:
        with judged(TOSSING, SHARED, *[FEWER] * (HELD - 1), TOSSING, SHARED, FEWER) as threads:
            assert threads.after(HELD) == (FEW, True)
            assert threads.after(1) == (THREADS, False)
            assert threads.after(1) == (THREADS, True)
            assert threads.after(1) == (FEW, True)

    def test_a_few_threads_stay_as_many(self) -> None:
        with judged(TOSSING, SHARED, FEWER, threads=FEW) as threads:
            assert threads.after(10) == (FEW, True)

    def test_a_single_thread_is_left_alone(self) -> None:
        with judged(TOSSING, SHARED, FEWER, threads=1) as threads:
            assert threads.after(10) == (1, False)


def test_a_program_that_was_given_one_cpu_is_left_alone() -> None:
    given = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(given)})
    try:
        contention = Contention(
            [threading.current_thread()] * THREADS,
            lambda: pytest.fail("there is no choice"),
            lambda _most: pytest.fail("there is no choice"),
        )
        contention.judge()
    finally:
        os.sched_setaffinity(0, given)


class Crowd:
    """A syncer that counts who is in it, as long as its gate is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.inside: list[int] = []
        self.most = 0

    def sync(self, _message: bytes) -> bool:
        self.inside.append(threading.get_ident())
        self.most = max(self.most, len(self.inside))
        self.gate.wait(PATIENCE)
        sleep(0.001)
        self.inside.remove(threading.get_ident())
        return True


@contextmanager
def crowded(crowd: Crowd, concurrency: int) -> Iterator[tuple[ThreadWorkers, Mailbox]]:
    mailbox = make_mailbox()
    workers = ThreadWorkers(
        look_at(crowd.sync, "my:syncer"),
        lambda call: Handler(Pipeline(Schema.RAW), Policy(), call, takes_delivery=False, time_limit=0.0),
        concurrency,
        mailbox,
    )
    workers.start()
    try:
        yield workers, mailbox
    finally:
        crowd.gate.set()
        assert workers.stop(PATIENCE)


class TestLimited:
    def test_no_more_begin_than_may_and_all_is_done(self) -> None:
        """R-004-6: and nobody sleeps while there is work for one more."""
        crowd = Crowd()
        with crowded(crowd, 6) as (workers, mailbox):
            workers.limit(2)
            wait_for(workers.can_borrow, PATIENCE, "threads that sleep")
            crowd.gate.set()
            for batch in range(20):
                workers.submit(deliveries(25, 25 * batch))
            done = collect(mailbox, 500)
        assert len({settlement.delivery.body for settlement in done}) == 500
        # Whoever was woken before the limit was seen may still finish what it took.
        assert crowd.most <= 3

    def test_those_above_the_limit_finish_and_begin_nothing_new(self) -> None:
        crowd = Crowd()
        with crowded(crowd, 6) as (workers, mailbox):
            workers.submit(deliveries(6))
            wait_for(lambda: len(crowd.inside) == 6, PATIENCE, "all at work")
            workers.limit(2)
            workers.submit(deliveries(300, 6))
            crowd.gate.set()
            collect(mailbox, 6)
            crowd.most = 0
            collect(mailbox, 250)
            assert crowd.most <= 3

    def test_without_the_limit_all_begin_at_once_although_the_few_take_their_time(self) -> None:
        """Nothing waits for a syncer that hangs: this is what the next pulse does."""
        crowd = Crowd()
        with crowded(crowd, 6) as (workers, mailbox):
            workers.limit(2)
            workers.submit(deliveries(6))
            wait_for(lambda: len(crowd.inside) == 2, PATIENCE, "two at work")
            workers.limit(6)
            wait_for(lambda: len(crowd.inside) == 6, PATIENCE, "all at work")
            crowd.gate.set()
            collect(mailbox, 6)

    def test_a_changing_limit_loses_nobody(self) -> None:
        crowd = Crowd()
        crowd.gate.set()
        done: list[Delivery] = []
        with crowded(crowd, 8) as (workers, mailbox):
            for turn in range(60):
                workers.limit((1, 8, 3, 2, 5)[turn % 5])
                workers.submit(deliveries(17, 17 * turn))
                done += [settlement.delivery for settlement in collect(mailbox, 17)]
        assert sorted(int(one.body) for one in done) == list(range(60 * 17))


@two_cpus
def test_the_workers_are_tuned_only_while_they_have_the_pump(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = os.sched_getaffinity(0)
    monkeypatch.setattr(OneCpu, "judge", lambda _self, _pulse: min(everything))
    waker, give_back = Waker(), threading.Event()
    crowd = Crowd()
    with crowded(crowd, 3) as (workers, _):
        wait_for(workers.can_borrow, PATIENCE, "somebody who would turn the pump")

        def turn(patience: float) -> float | None:
            waker.wait(min(patience, 0.01))
            return None if give_back.is_set() else 0.25

        def of_syncers() -> list[set[int]]:
            named = [thread for thread in threading.enumerate() if thread.name.startswith("syncer-")]
            return [os.sched_getaffinity(thread.native_id or 0) for thread in named]

        home = threading.Thread(target=workers.borrow, args=(turn, waker.fileno()))
        home.start()
        wait_for(lambda: of_syncers() == [{min(everything)}] * 3, PATIENCE, "threads on one CPU")
        give_back.set()
        home.join(PATIENCE)
        assert of_syncers() == [everything] * 3
