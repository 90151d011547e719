"""The pump at work: bounds, backpressure and what is told, on a broker that obeys the test."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action, Fatal
from chronicle.core.policy import OnException, Policy
from chronicle.engine.job import Bounds, Exit, Lifecycle
from chronicle.errors import (
    BrokerUnreachable,
)
from chronicle.telemetry import events
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.seam import Closing
from support.running import PATIENCE, Gate, Running
from support.scripted import ScriptedTransport

UNTIL_EMPTY = Bounds(until_empty=True)
AWAY = BrokerUnreachable("nobody answers")


def yes(message: bytes) -> bool:
    return True


def no(message: bytes) -> bool:
    return False


def bodies(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


class TestBounds:
    @pytest.mark.parametrize("concurrency", [1, 5])
    def test_until_empty_ends_when_all_is_settled(self, concurrency: int) -> None:
        transport = ScriptedTransport(*bodies(50))
        ending = Running(
            yes, transport, bounds=UNTIL_EMPTY, concurrency=concurrency, prefetch=2 * concurrency
        ).ending
        assert (ending.code, ending.reason) == (Exit.DONE, "the queue is empty")
        assert sorted(transport.fates(Action.ACK)) == list(range(50))

    def test_until_empty_waits_for_what_was_requeued(self) -> None:
        transport = ScriptedTransport(*bodies(3))
        assert Running(no, transport, bounds=UNTIL_EMPTY).ending.code is Exit.DONE
        assert sorted(transport.fates(Action.REQUEUE)) == [0, 1, 2]
        assert sorted(transport.fates(Action.DEAD_LETTER)) == [0, 1, 2]

    def test_until_empty_asks_again_after_a_lost_connection(self) -> None:
        """The queue was empty, then the broker was away: what it says when it is back counts."""

        class Emptied(ScriptedTransport):
            def is_empty(self) -> bool | None:
                answer = super().is_empty()
                if self.opened == 1:
                    self.lose()
                    self.publish(b"came meanwhile")
                return answer

        transport = Emptied()
        ending = Running(yes, transport, bounds=UNTIL_EMPTY).ending
        assert ending.code is Exit.DONE
        assert transport.fates(Action.ACK) == [0]

    def test_until_empty_with_a_source_that_does_not_know_its_length(self) -> None:
        source = (Delivery(body, queue="q", transport="memory") for body in bodies(20))
        ending = Running(yes, MemoryTransport(source), bounds=UNTIL_EMPTY).ending
        assert ending.counters.ack == 20

    def test_max_messages_takes_not_one_more(self) -> None:
        transport = ScriptedTransport(*bodies(10))
        running = Running(yes, transport, prefetch=4, bounds=Bounds(max_messages=5))
        assert running.ending.code is Exit.DONE
        assert running.ending.reason == "5 messages received"
        assert transport.fates(Action.ACK) == [0, 1, 2, 3, 4]
        assert transport.delivered == 5
        assert len(transport.queue) == 5

    def test_max_time(self) -> None:
        now = [0.0]

        def takes_an_hour(message: bytes) -> bool:
            now[0] += 3600
            return True

        transport = ScriptedTransport(b"1")
        ending = Running(takes_an_hour, transport, bounds=Bounds(max_time=3600), clock=lambda: now[0]).ending
        assert (ending.code, ending.reason) == (Exit.DONE, "time is up")
        assert ending.counters.ack == 1

    def test_max_time_ends_a_run_whose_broker_is_away(self) -> None:
        """A cron job must not pile up behind a broker that stays away; and it was no success."""
        transport = ScriptedTransport()
        transport.unreachable = AWAY
        lifecycle = Lifecycle(startup_timeout=0)
        ending = Running(yes, transport, bounds=Bounds(max_time=0.05), lifecycle=lifecycle).ending
        assert (ending.code, ending.reason) == (Exit.UNREACHABLE, "time is up, and the broker is unreachable")

    def test_idle_timeout(self) -> None:
        ending = Running(yes, ScriptedTransport(b"1"), bounds=Bounds(idle_timeout=0.05)).ending
        assert (ending.code, ending.reason) == (Exit.DONE, "idle")
        assert ending.counters.ack == 1

    def test_a_syncer_at_work_is_not_idle(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(b"1")
        running = Running(gate.sync, transport, bounds=Bounds(idle_timeout=0.01))
        running.wait_for(lambda: gate.started, "the syncer")
        turns = transport.turns
        running.wait_for(lambda: transport.turns >= turns + 2, "two more turns")
        assert not running.is_over
        gate.free.set()
        assert running.ending.counters.ack == 1


class TestBackpressure:
    @pytest.mark.parametrize(("concurrency", "prefetch"), [(1, 1), (1, 4), (3, 2), (4, 8)])
    @pytest.mark.parametrize("form", ["sync", "sync_async"])
    def test_D_7_never_more_held_than_the_prefetch(self, form: str, concurrency: int, prefetch: int) -> None:
        gate = Gate()
        transport = ScriptedTransport(*bodies(30))
        running = Running(
            getattr(gate, form), transport, concurrency=concurrency, prefetch=prefetch, bounds=UNTIL_EMPTY
        )
        at_once = min(concurrency, prefetch)
        running.wait_for(lambda: len(gate.started) == at_once, "the syncers")
        turns = transport.turns
        running.wait_for(lambda: transport.turns > turns, "another turn")
        assert len(gate.started) == at_once
        gate.free.set()
        assert running.ending.counters.ack == 30
        assert transport.most_held == prefetch

    def test_RB5_the_broker_is_served_while_a_syncer_blocks_its_loop(self) -> None:
        """R-000-26: heartbeats never wait for a syncer, not even for a coroutine that blocks."""
        free, started = threading.Event(), threading.Event()

        async def blocking(message: bytes) -> bool:
            started.set()
            return free.wait(PATIENCE)

        transport = ScriptedTransport(*bodies(3))
        running = Running(blocking, transport, bounds=UNTIL_EMPTY)
        assert started.wait(PATIENCE)
        turns = transport.turns
        running.wait_for(lambda: transport.turns >= turns + 2, "two more turns")
        free.set()
        assert running.ending.counters.ack == 3


class TestTold:
    def test_D_19_the_counters_are_what_happened(self) -> None:
        def sync(message: bytes) -> bool:
            if message == b"raise":
                raise ValueError
            return message == b"yes"

        transport = ScriptedTransport(b"yes", b"no", b"raise", b"yes")
        policy = Policy(on_exception=OnException.FAIL)
        running = Running(sync, transport, policy=policy, bounds=UNTIL_EMPTY)
        facts = running.ending.counters.facts()
        assert {name: count for name, count in facts.items() if count} == {
            "queued": 4, "received": 6, "ack": 2, "nack": 4, "requeued": 2, "dead_lettered": 2,
        }  # fmt: skip
        assert running.notebook.facts(events.STOPPED)[0].items() >= facts.items()
        assert running.notebook.closed == 1

    def test_style_8_one_line_per_verdict_after_settling(self) -> None:
        transport = ScriptedTransport(*bodies(5))
        running = Running(no, transport, bounds=UNTIL_EMPTY)
        assert running.ending.code is Exit.DONE
        told = [(s.delivery.handle, s.verdict.action) for s in running.notebook.settled_]
        assert told == [(carried.handle, carried.action) for carried in transport.carried]

    def test_R_000_3_and_43_every_transition_is_told_and_counted(self) -> None:
        running = Running(yes, ScriptedTransport(b"1"), bounds=UNTIL_EMPTY)
        assert running.ending.code is Exit.DONE
        moves = [facts["to"] for facts in running.notebook.facts("scripted_trigger.state_change")]
        assert moves == ["Opening", "Delivering", "Draining", "Closed"]
        (stopped,) = running.notebook.facts(events.STOPPED)
        assert stopped["states"] == {"Opening": 1, "Delivering": 1, "Draining": 1, "Closed": 1}

    def test_R_001_31_every_transition_tells_what_is_in_flight_and_so_does_the_end(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(b"1", b"2")
        running = Running(gate.sync, transport, concurrency=2)
        running.wait_for(lambda: len(gate.started) == 2, "two syncers at work")
        running.runner.stop("enough")
        running.wait_for(lambda: transport.machine.state == "Draining", "the drain")
        gate.free.set()
        assert running.ending.code is Exit.DONE
        changes = running.notebook.facts("scripted_trigger.state_change")
        told = [(facts["to"], facts["scripted_trigger_inflight"]) for facts in changes]
        assert told == [("Opening", 0), ("Delivering", 0), ("Draining", 2), ("Closed", 0)]
        (stopped,) = running.notebook.facts(events.STOPPED)
        assert stopped["scripted_trigger_inflight"] == stopped["inflight"] == 0

    def test_notices_are_told_once_and_counted_also_those_of_the_end(self) -> None:
        class Remarking(ScriptedTransport):
            def open(self, stopping: Callable[[], bool]) -> int | None:
                self.notices.append(Notice("stream.trimmed", logging.ERROR, "gone", {"count": 3}))
                return super().open(stopping)

            def close(self, why: Closing = Closing.SETTLED) -> None:
                self.notices.append(Notice("acks.unconfirmed", logging.WARNING, "no answer"))
                super().close(why)

        running = Running(yes, Remarking(b"1"), bounds=UNTIL_EMPTY)
        assert running.ending.code is Exit.DONE
        assert running.notebook.texts("stream.trimmed") == ["gone"]
        assert running.notebook.texts("acks.unconfirmed") == ["no answer"]
        assert running.notebook.facts(events.STOPPED)[0]["notices"] == {
            "stream.trimmed": 3, "acks.unconfirmed": 1,
        }  # fmt: skip
        assert running.notebook.events[-1][0] == events.STOPPED

    def test_a_fatal_outcome_is_told_with_its_trace(self) -> None:
        running = Running(lambda message: 1 / 0, ScriptedTransport(b"1"))
        assert running.ending.code is Exit.FATAL
        fatal = running.notebook.facts(events.FATAL)
        assert len(fatal) == 1
        assert "ZeroDivisionError" in fatal[0]["trace"]
        assert [type(s.outcome) for s in running.notebook.settled_] == [Fatal]
