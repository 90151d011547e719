"""Where syncers run: bounded, nothing lost or doubled, and never dead in silence."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Synced
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.core.settlement import Settlement
from chronicle.workers.handler import Handler
from chronicle.workers.mailbox import Mailbox
from support.waiting import wait_for
from support.workers import PATIENCE, collect, deliveries, make, make_mailbox, working

SHORT = 0.05


def sync(message: bytes) -> bool:
    return True


async def sync_async(message: bytes) -> bool:
    return True


both = pytest.mark.parametrize("syncer", [sync, sync_async], ids=["threads", "tasks"])


class TestBounded:
    def test_threads_run_as_many_as_asked_and_no_more(self) -> None:
        """R-004-6, and R-000-4."""
        together = threading.Barrier(3)
        running, most = [0], [0]
        lock = threading.Lock()

        def slow(message: bytes) -> bool:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            together.wait(PATIENCE)
            with lock:
                running[0] -= 1
            return True

        with working(slow, 3) as (workers, mailbox):
            workers.submit(deliveries(12))
            assert all(s.outcome == Synced() for s in collect(mailbox, 12))
        assert most[0] == 3

    def test_tasks_run_as_many_as_asked_and_no_more(self) -> None:
        """R-004-6, and R-000-4."""
        running, most = [0], [0]

        async def slow(message: bytes) -> bool:
            running[0] += 1
            most[0] = max(most[0], running[0])
            while most[0] < 3:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            running[0] -= 1
            return True

        with working(slow, 3) as (workers, mailbox):
            workers.submit(deliveries(12))
            collect(mailbox, 12)
        assert most[0] == 3


class TestNothingLost:
    @pytest.mark.parametrize("concurrency", [1, 8])
    @both
    def test_twenty_thousand_in_random_batches(self, syncer: Any, concurrency: int) -> None:
        luck = Random(concurrency)
        everything = deliveries(20_000)
        done: list[Settlement] = []
        with working(syncer, concurrency) as (workers, mailbox):
            at = 0
            while at < len(everything):
                size = luck.choice([1, 1, 2, 7, 100])
                workers.submit(everything[at : at + size])
                at += size
                done.extend(mailbox.take())
            done += collect(mailbox, len(everything) - len(done))
            assert not mailbox
        assert Counter(id(s.delivery) for s in done) == Counter(map(id, everything))

    @both
    @given(steps=st.lists(st.integers(0, 6), max_size=12), concurrency=st.integers(1, 4))
    @settings(max_examples=40)
    def test_each_is_either_done_once_or_taken_back_once(
        self, syncer: Any, steps: list[int], concurrency: int
    ) -> None:
        """Six means: take back what nobody has started."""
        given_out: list[Delivery] = []
        back: list[Delivery] = []
        with working(syncer, concurrency) as (workers, mailbox):
            for step in steps:
                if step == 6:
                    back += workers.discard()
                else:
                    batch = deliveries(step, len(given_out))
                    given_out += batch
                    workers.submit(batch)
            back += workers.discard()
            done = collect(mailbox, len(given_out) - len(back))
        ended = [id(s.delivery) for s in done] + [id(delivery) for delivery in back]
        assert sorted(ended) == sorted(map(id, given_out))

    def test_only_what_no_thread_has_started_is_taken_back(self) -> None:
        free = threading.Event()
        started: list[bytes] = []

        def slow(message: bytes) -> bool:
            started.append(message)
            return free.wait(PATIENCE)

        with working(slow, 2) as (workers, mailbox):
            workers.submit(deliveries(5))
            wait_for(lambda: len(started) == 2, PATIENCE, "two to start")
            back = workers.discard()
            free.set()
            done = collect(mailbox, 2)
        assert [delivery.body for delivery in back] == [b"2", b"3", b"4"]
        assert sorted(s.delivery.body for s in done) == [b"0", b"1"]

    def test_only_what_no_task_has_started_is_taken_back(self) -> None:
        free = threading.Event()
        started: list[bytes] = []

        async def slow(message: bytes) -> bool:
            started.append(message)
            while not free.is_set():
                await asyncio.sleep(0.001)
            return True

        with working(slow, 2) as (workers, mailbox):
            workers.submit(deliveries(5))
            wait_for(lambda: len(started) == 2, PATIENCE, "two to start")
            back = workers.discard()
            free.set()
            done = collect(mailbox, 2)
        assert [delivery.body for delivery in back] == [b"2", b"3", b"4"]
        assert sorted(s.delivery.body for s in done) == [b"0", b"1"]


class TestStuck:
    """D-17, X4: a syncer that never returns does not keep a stop waiting."""

    def stop_while_stuck(self, syncer: Any, started: threading.Event, free: threading.Event) -> None:
        workers = make(syncer, make_mailbox())
        workers.start()
        workers.submit(deliveries(1))
        assert started.wait(PATIENCE)
        try:
            assert workers.stop(SHORT) is False
        finally:
            free.set()
        assert workers.stop(PATIENCE) is True

    def test_a_thread(self) -> None:
        started, free = threading.Event(), threading.Event()

        def stuck(message: bytes) -> bool:
            started.set()
            return free.wait(PATIENCE)

        self.stop_while_stuck(stuck, started, free)

    def test_a_task_that_blocks_its_loop(self) -> None:
        started, free = threading.Event(), threading.Event()

        async def stuck(message: bytes) -> bool:
            started.set()
            return free.wait(PATIENCE)

        self.stop_while_stuck(stuck, started, free)

    def test_a_thread_behind_a_task(self) -> None:
        """Python joins such a thread at the end of the process, so the caller must know."""
        started, free = threading.Event(), threading.Event()

        def block() -> bool:
            started.set()
            return free.wait(PATIENCE)

        async def stuck(message: bytes) -> bool:
            return await asyncio.to_thread(block)

        self.stop_while_stuck(stuck, started, free)

    def test_a_task_that_waits_is_cancelled(self) -> None:
        started = threading.Event()

        async def waiting(message: bytes) -> bool:
            started.set()
            await asyncio.sleep(3600)
            return True

        workers = make(waiting, make_mailbox())
        workers.start()
        workers.submit(deliveries(1))
        assert started.wait(PATIENCE)
        assert workers.stop(PATIENCE) is True


class TestSharedTurns:
    """A turn of the pump costs more than a result: while there is work, results share one."""

    def woken(self) -> tuple[Mailbox, list[int]]:
        """A mailbox whose pump falls asleep again at once, and how many results it found each time."""
        found: list[int] = []

        def wake() -> None:
            found.append(len(mailbox.take()))
            mailbox.pump_sleeps = True

        mailbox = Mailbox(wake)
        mailbox.pump_sleeps = True
        return mailbox, found

    def test_tasks_that_finish_together(self) -> None:
        mailbox, found = self.woken()
        workers = make(sync_async, mailbox, 8)
        workers.start()
        workers.submit(deliveries(400))
        wait_for(lambda: sum(found) == 400, PATIENCE, "all results")
        assert workers.stop(PATIENCE)
        assert max(found) == 4  # half the concurrency
        assert len(found) <= 110

    def test_one_result_is_not_kept_waiting_by_others(self) -> None:
        mailbox, found = self.woken()
        free = threading.Event()

        async def slow(message: bytes) -> bool:
            while message != b"0" and not free.is_set():
                await asyncio.sleep(0.001)
            return True

        workers = make(slow, mailbox, 8)
        workers.start()
        workers.submit(deliveries(20))
        wait_for(lambda: found == [1], PATIENCE, "the one result")
        free.set()
        wait_for(lambda: sum(found) == 20, PATIENCE, "the others")
        assert workers.stop(PATIENCE)


class TestMailbox:
    def settlement(self) -> Settlement:
        return Handler(Pipeline(Schema.RAW), Policy(), sync, takes_delivery=False).run(deliveries(1)[0])

    def test_the_pump_is_woken_once_and_only_when_it_sleeps(self) -> None:
        rings: list[None] = []
        mailbox = Mailbox(lambda: rings.append(None))
        mailbox.put(self.settlement())
        assert not rings
        mailbox.pump_sleeps = True
        mailbox.put(self.settlement())
        mailbox.put(self.settlement())
        assert len(rings) == 1
        assert mailbox
        assert len(mailbox.take()) == 3
        assert not mailbox

    def test_a_crash_wakes_it_too(self) -> None:
        rings: list[None] = []
        mailbox = Mailbox(lambda: rings.append(None))
        mailbox.pump_sleeps = True
        mailbox.put_crash(ValueError())
        assert len(rings) == 1
        assert mailbox
