"""How a run ends: drains, deadlines, and what cannot go on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from chronicle.core.outcome import Action
from chronicle.core.pipeline import Pipeline
from chronicle.core.policy import OnFailure, Policy
from chronicle.engine.job import Bounds, Exit, Lifecycle
from chronicle.errors import (
    Retry,
    SyncerError,
)
from chronicle.telemetry import events
from support.running import PATIENCE, Gate, Running
from support.samples import body, keys
from support.scripted import ScriptedTransport

UNTIL_EMPTY = Bounds(until_empty=True)


def yes(message: bytes) -> bool:
    return True


def no(message: bytes) -> bool:
    return False


def bodies(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


class TestDrain:
    @pytest.mark.parametrize("form", ["sync", "sync_async"])
    def test_D_11_what_was_received_is_finished(self, form: str) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(10))
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=4)
        running.wait_for(lambda: gate.started, "the first")
        running.runner.stop("SIGTERM")
        running.wait_for(lambda: running.notebook.facts(events.STOPPING), "the drain")
        gate.free.set()
        assert (running.ending.code, running.ending.reason) == (Exit.DONE, "SIGTERM")
        assert transport.fates(Action.ACK) == [0, 1, 2, 3]
        assert len(transport.queue) == 6

    @pytest.mark.parametrize("form", ["sync", "sync_async"])
    def test_D_11_what_is_unfinished_at_the_deadline_goes_back_untouched(self, form: str) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(4))
        lifecycle = Lifecycle(drain_timeout=0.05)
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=3, lifecycle=lifecycle)
        running.wait_for(lambda: gate.started, "the first")
        ending = running.stop("SIGTERM")
        assert ending.code is Exit.RETURNED
        assert ending.reason.endswith("; 3 unfinished messages went back")
        assert ending.stuck is (form == "sync"), "a task is cancelled, a thread cannot be"
        assert not transport.carried
        assert len(transport.queue) == 4
        left = [s for s in running.notebook.settled_ if s.verdict.action is Action.LEAVE]
        assert len(left) == 3, "each is named in the log"
        assert running.notebook.facts(events.STOPPED)[0]["unfinished"] == 3
        gate.free.set()

    def test_D_11_no_syncer_starts_on_a_message_that_went_back(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(3))
        lifecycle = Lifecycle(drain_timeout=0.02)
        running = Running(gate.sync, transport, concurrency=1, prefetch=3, lifecycle=lifecycle)
        running.wait_for(lambda: gate.started, "the first")
        running.runner.stop("SIGTERM")
        running.wait_for(lambda: len(transport.queue) == 3, "the messages to go back")
        gate.free.set()
        assert running.ending.code is Exit.RETURNED
        assert gate.started == [b"0"]

    @pytest.mark.parametrize("form", ["sync", "sync_async"])
    def test_an_idle_run_stops_well_without_any_patience(self, form: str) -> None:
        transport = ScriptedTransport()
        lifecycle = Lifecycle(drain_timeout=0)
        running = Running(getattr(Gate(), form), transport, concurrency=8, lifecycle=lifecycle)
        running.wait_for(lambda: transport.turns, "the first turn")
        ending = running.stop()
        assert (ending.code, ending.stuck) == (Exit.DONE, False)

    def test_D_11_a_drain_without_any_time_begins_nothing(self) -> None:
        """What the broker sends before it hears of the stop would be left in the middle of its work."""

        class Pushing(ScriptedTransport):
            def stop(self, patience: float) -> None:
                super().stop(patience)
                self._stopped = False
                self.publish(b"second")

        gate, transport = Gate(), Pushing(b"first")
        lifecycle = Lifecycle(drain_timeout=0)
        running = Running(gate.sync, transport, concurrency=8, prefetch=8, lifecycle=lifecycle)
        running.wait_for(lambda: gate.started, "the first")
        ending = running.stop("SIGTERM")
        gate.free.set()
        assert (ending.code, transport.delivered) == (Exit.RETURNED, 1)

    def test_R_000_25_a_connection_lost_during_the_drain(self) -> None:
        """Nothing can be settled any more; the syncers may finish what they do in the world outside."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(3))
        running = Running(gate.sync, transport, concurrency=1, prefetch=3)
        running.wait_for(lambda: gate.started, "the first")
        running.runner.stop("SIGTERM")
        running.wait_for(lambda: running.notebook.facts(events.STOPPING), "the drain")
        transport.lose()
        running.wait_for(lambda: running.notebook.facts(events.LOST), "the loss")
        gate.free.set()
        ending = running.ending
        assert ending.code is Exit.RETURNED
        assert ending.reason == "SIGTERM; 3 unfinished messages went back"
        assert gate.ended == [b"0"]
        assert transport.opened == 1
        assert not transport.carried

    def test_a_syncer_that_outlasts_the_drain_without_a_connection_is_counted_once(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(2))
        lifecycle = Lifecycle(drain_timeout=0.1)
        running = Running(gate.sync, transport, concurrency=1, prefetch=2, lifecycle=lifecycle)
        running.wait_for(lambda: gate.started, "the first")
        running.runner.stop("SIGTERM")
        transport.lose()
        assert running.ending.code is Exit.RETURNED
        assert running.notebook.facts(events.STOPPED)[0]["unfinished"] == 2
        gate.free.set()

    def test_a_requeue_that_waits_for_its_time_goes_back_at_a_stop(self) -> None:
        def later(message: bytes) -> bool:
            raise Retry(after=3600)

        transport = ScriptedTransport(*bodies(2))
        running = Running(later, transport, prefetch=2)
        running.wait_for(lambda: running.runner.counters.received == 2, "both")
        running.wait_for(lambda: transport.turns > 4, "some turns")
        assert not transport.carried
        running.wait_for(lambda: running.runner.counters.unsettled == 2, "both to be counted")
        assert running.stop().code is Exit.DONE
        assert transport.fates(Action.REQUEUE) == [0, 1]

    def test_requeues_with_a_delay_are_kept_in_the_order_of_their_time(self) -> None:
        now = [0.0]

        def later(message: bytes) -> bool:
            if message == b"now":
                return True
            raise Retry(after=float(message))

        transport = ScriptedTransport(b"20", b"10", b"now")
        running = Running(later, transport, prefetch=3, clock=lambda: now[0])
        running.wait_for(lambda: transport.fates(Action.ACK) == [2], "the others to be shelved")
        now[0] = 15
        running.wait_for(lambda: transport.fates(Action.REQUEUE) == [1], "the second")
        now[0] = 22
        running.wait_for(lambda: transport.fates(Action.REQUEUE) == [1, 0], "the first")
        running.stop()

    def test_D_1_requeue_for_ever_is_no_hot_loop(self) -> None:
        transport = ScriptedTransport(b"1")
        running = Running(no, transport, policy=Policy(on_failure=OnFailure.REQUEUE))
        running.wait_for(lambda: running.runner.counters.received, "the message")
        turns = transport.turns
        running.wait_for(lambda: transport.turns > turns + 1, "more turns")
        assert running.runner.counters.received == 1
        running.stop()
        assert transport.fates(Action.REQUEUE) == [0]


class TestFatal:
    def test_D_17_the_culprit_is_left_and_the_finished_are_settled(self) -> None:
        def sync(message: bytes) -> bool:
            if message == b"3":
                raise ValueError
            return True

        transport = ScriptedTransport(*bodies(6))
        running = Running(sync, transport, concurrency=1, prefetch=6)
        ending = running.ending
        assert (ending.code, ending.reason) == (Exit.FATAL, "the syncer raised ValueError")
        assert "in sync" in ending.trace
        acked = transport.fates(Action.ACK)
        assert acked[:3] == [0, 1, 2]
        assert 3 not in acked
        # Until the pump knows, the worker may have gone on; what it finished is settled like the others.
        assert sorted([*acked, *(message.number for message in transport.queue)]) == list(range(6))
        assert ending.counters.ack == len(acked)

    def test_D_17_the_others_may_finish_for_a_moment_only(self) -> None:
        gate = Gate()

        def sync(message: bytes) -> bool:
            if message == b"bad":
                raise ValueError
            return gate.sync(message)

        transport = ScriptedTransport(b"slow", b"bad")
        # Ten seconds of this clock pass in one: the moment is two seconds long.
        running = Running(sync, transport, concurrency=2, clock=lambda: time.monotonic() * 10)
        ending = running.ending
        assert (ending.code, ending.stuck) == (Exit.FATAL, True)
        assert not transport.carried
        assert len(transport.queue) == 2
        gate.free.set()

    def test_X3_an_answer_that_is_no_answer(self) -> None:
        transport = ScriptedTransport(b"1")
        ending = Running(lambda message: None, transport).ending
        assert (ending.code, ending.reason) == (
            Exit.FATAL,
            "the syncer returned None, not True or False: is a `return True` missing?",
        )
        assert len(transport.queue) == 1

    def test_R_004_3_a_background_task_that_dies(self) -> None:
        async def background() -> None:
            raise LookupError

        async def sync(message: bytes) -> bool:
            asyncio.get_running_loop().create_task(background())
            return True

        running = Running(sync, ScriptedTransport(b"1"))
        ending = running.ending
        assert (ending.code, ending.reason) == (Exit.FATAL, "uncaught LookupError outside any message")
        assert "in background" in ending.trace

    def test_R_004_3_a_loop_that_ends(self) -> None:
        """A consumer that holds messages and does nothing would be worse than one that ends."""

        async def background() -> None:
            raise SystemExit

        async def sync(message: bytes) -> bool:
            asyncio.get_running_loop().create_task(background())
            await asyncio.sleep(3600)
            return True

        transport = ScriptedTransport(*bodies(3))
        ending = Running(sync, transport, clock=lambda: time.monotonic() * 10).ending
        assert ending.code is Exit.FATAL
        assert len(transport.queue) == 3

    def test_R_004_3_a_thread_that_dies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda args: None)

        def background() -> None:
            raise LookupError

        def sync(message: bytes) -> bool:
            thread = threading.Thread(target=background)
            thread.start()
            thread.join(PATIENCE)
            return True

        ending = Running(sync, ScriptedTransport(b"1")).ending
        assert (ending.code, ending.reason) == (Exit.FATAL, "uncaught LookupError outside any message")

    def test_Z7_twenty_in_a_row_that_cannot_be_opened(self) -> None:
        """A wrong key store must not empty the queue into the dead letters."""
        sealed = body("action-encrypted-unknown-key.json")
        transport = ScriptedTransport(*[sealed] * 60)
        pipeline = Pipeline(keys=keys(), require_decryption=True)
        running = Running(yes, transport, pipeline=pipeline, bounds=UNTIL_EMPTY)
        ending = running.ending
        assert ending.code is Exit.OPERATOR
        assert "20 messages in a row could not be decrypted" in ending.reason
        assert running.notebook.texts(events.CIRCUIT_OPEN) == [ending.reason]
        assert len(transport.fates(Action.REQUEUE)) <= 22
        assert not transport.fates(Action.DEAD_LETTER)

    def test_Z7_one_that_can_be_opened_starts_the_count_anew(self) -> None:
        sealed, good = body("action-encrypted-unknown-key.json"), body("action-encrypted.json")
        transport = ScriptedTransport(*[sealed] * 15, good, *[sealed] * 15)
        pipeline = Pipeline(keys=keys(), require_decryption=True)
        ending = Running(yes, transport, pipeline=pipeline, bounds=Bounds(max_messages=31)).ending
        assert ending.code is Exit.DONE

    def test_D_9_a_syncer_that_does_not_start_ends_the_run_before_it_connects(self) -> None:
        class Crm:
            def __init__(self) -> None:
                raise OSError

            def __call__(self, message: bytes) -> bool:
                return True

        transport = ScriptedTransport(b"1")
        with pytest.raises(SyncerError):
            _ = Running(Crm, transport).ending
        assert transport.opened == 0

    def test_a_syncer_that_fails_to_close_is_told_and_is_no_success(self) -> None:
        class Crm:
            def __enter__(self) -> None: ...

            def __exit__(self, *exc: object) -> None:
                raise OSError

            def __call__(self, message: bytes) -> bool:
                return True

        transport = ScriptedTransport(b"1")
        ending = Running(Crm, transport, bounds=UNTIL_EMPTY).ending
        assert ending.code is Exit.FATAL
        assert ending.reason == "the queue is empty; the syncer failed to close"
        assert transport.fates(Action.ACK) == [0]
