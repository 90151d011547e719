"""Where syncers run: bounded, nothing lost or doubled, and never dead in silence."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
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
from chronicle.workers.base import make_workers
from chronicle.workers.handler import Handler
from chronicle.workers.loader import look_at
from chronicle.workers.mailbox import Mailbox, watch_other_threads
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


class TestCrashes:
    """R-004-3: what the person's code starts by itself and lets die ends the run; the pump hears of it."""

    def crash_of(self, syncer: Any) -> BaseException:
        mailbox = make_mailbox()
        workers = make(syncer, mailbox)
        workers.start()
        workers.submit(deliveries(1))
        wait_for(lambda: mailbox.crash, PATIENCE, "the crash")
        crash = mailbox.crash
        assert crash is not None
        with suppress(type(crash)):  # it is the loop's own end, where it ended the loop
            workers.stop(PATIENCE)
        return crash

    @pytest.mark.parametrize("kind", [ValueError, SystemExit])
    def test_a_background_task(self, kind: type[BaseException]) -> None:
        async def background() -> None:
            raise kind

        async def starts_one(message: bytes) -> bool:
            asyncio.get_running_loop().create_task(background())
            await asyncio.sleep(0.001)
            return True

        assert type(self.crash_of(starts_one)) is kind

    def test_a_callback_on_the_loop(self) -> None:
        def boom() -> None:
            raise LookupError

        async def starts_one(message: bytes) -> bool:
            asyncio.get_running_loop().call_soon(boom)
            return True

        assert type(self.crash_of(starts_one)) is LookupError

    def test_a_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[threading.ExceptHookArgs] = []
        monkeypatch.setattr(threading, "excepthook", told.append)
        mailbox = make_mailbox()
        with watch_other_threads(mailbox):
            self.run_thread(lambda: 1 / 0)
            assert isinstance(mailbox.crash, ZeroDivisionError)
            assert len(told) == 1, "whoever listened before is told as well"
        mailbox.crash = None
        self.run_thread(lambda: 1 / 0)
        assert mailbox.crash is None

    def test_a_thread_that_exits_is_no_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda args: None)
        mailbox = make_mailbox()
        with watch_other_threads(mailbox):
            self.run_thread(sys.exit)
        assert mailbox.crash is None

    @pytest.mark.parametrize("alone", [True, False])
    def test_a_worker_that_ends(self, alone: bool) -> None:
        """R-004-3: an error without words ends its thread, in a process where nobody watches threads, too."""

        class Wordless(Exception):
            def __str__(self) -> str:
                raise SystemExit

        def fails(message: bytes) -> bool:
            raise Wordless

        mailbox = make_mailbox()
        workers = make_workers(
            look_at(fails, "my:syncer"), Pipeline(Schema.RAW), Policy(), 1, mailbox, alone=alone
        )
        workers.start()
        workers.submit(deliveries(1))
        wait_for(lambda: mailbox.crash, PATIENCE, "the crash")
        assert isinstance(mailbox.crash, SystemExit)
        assert workers.stop(PATIENCE)

    def run_thread(self, target: Callable[[], object]) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join(PATIENCE)

    def test_the_loop_is_left_without_the_persons_tasks(self) -> None:
        """A background task gets to its `finally`, as with asyncio.run."""
        ended: list[str] = []
        kept: list[object] = []

        async def background() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("tidied")

        async def starts_one(message: bytes) -> bool:
            kept.append(asyncio.get_running_loop().create_task(background()))
            await asyncio.sleep(0.001)
            return True

        with working(starts_one) as (workers, mailbox):
            workers.submit(deliveries(1))
            collect(mailbox, 1)
        assert ended == ["tidied"]


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
