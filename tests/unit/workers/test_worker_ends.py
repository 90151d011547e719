"""What ends a worker, or the run, and is never dead in silence."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from chronicle.core.outcome import Synced
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.workers.base import make_workers
from chronicle.workers.loader import look_at
from chronicle.workers.mailbox import watch_other_threads
from support.waiting import wait_for
from support.workers import PATIENCE, collect, deliveries, make, make_mailbox, working


class TestCancelled:
    def test_a_syncer_that_cancels_its_own_task_harms_no_other_message(self) -> None:
        """What it said counts, and the next message has a task that nobody has cancelled."""

        async def cancels_itself(message: bytes) -> bool:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return True

        with working(cancels_itself, 2) as (workers, mailbox):
            workers.submit(deliveries(20))
            assert all(s.outcome == Synced() for s in collect(mailbox, 20))
            workers.submit(deliveries(20))
            assert all(s.outcome == Synced() for s in collect(mailbox, 20))
            assert mailbox.crash is None


class TestFatal:
    @pytest.mark.parametrize("form", ["threads", "tasks"])
    def test_D_17_nothing_begins_after_what_ends_the_run(self, form: str) -> None:
        """Not even before the pump has seen it: the side effect of one more would be one too many."""
        called: list[bytes] = []

        def fails(message: bytes) -> bool:
            called.append(message)
            raise ValueError

        async def fails_async(message: bytes) -> bool:
            return fails(message)

        with working(fails if form == "threads" else fails_async) as (workers, mailbox):
            workers.submit(deliveries(5))
            collect(mailbox, 1)
            workers.submit(deliveries(2, first=5))
            assert len(workers.discard()) == 6
            assert called == [b"0"]


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

    def test_a_worker_that_is_cancelled_while_it_has_nothing_to_do(self) -> None:
        """By a timer that outlives its message: its place would be empty, and nobody would notice."""

        async def sets_a_timer(message: bytes) -> bool:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.01, task.cancel)
            return True

        assert "cancelled between two messages" in str(self.crash_of(sets_a_timer))

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
