"""The pump and what a transport promises or takes back: late results, leases, notices, what is given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from chronicle.core.notice import Notice
from chronicle.core.outcome import Action, Interrupted, Revoked
from chronicle.core.policy import OnFailure, Policy
from chronicle.core.settlement import Settlement
from chronicle.engine.job import Bounds, Exit, Lifecycle
from chronicle.errors import BrokerUnreachable, Retry
from chronicle.telemetry import events
from chronicle.transports.seam import DeadLetterKeeper, Promises
from support.running import Gate, Running
from support.scripted import PROMISES, ScriptedTransport

OUTLIVING = replace(PROMISES, late_results=True)
AT_MOST_ONCE = replace(PROMISES, settles=False, dead_letters=DeadLetterKeeper.NOBODY)
forms = pytest.mark.parametrize("form", ["sync", "sync_async"])


def bodies(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def yes(message: bytes) -> bool:
    return True


class TestLateResults:
    @forms
    def test_a_claim_outlives_its_connection(self, form: str) -> None:
        """A Redis claim is not the connection's: what ran through a loss is settled after it, once."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(4), promises=OUTLIVING)
        running = Running(getattr(gate, form), transport, concurrency=2, prefetch=4)
        running.wait_for(lambda: len(gate.started) == 2, "two at work")
        transport.lose()
        running.wait_for(lambda: transport.opened == 2, "a second connection")
        gate.free.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 4, "four acks")
        assert running.stop().code is Exit.DONE
        assert sorted(transport.fates(Action.ACK)) == [0, 1, 2, 3]
        assert sorted(gate.ended) == bodies(4)
        assert transport.most_held == 4

    def test_a_delayed_requeue_outlives_it_too(self) -> None:
        tries: list[bytes] = []

        def later(message: bytes) -> bool:
            tries.append(message)
            if len(tries) == 1:
                raise Retry(after=0.2)
            return True

        transport = ScriptedTransport(b"1", promises=OUTLIVING)
        running = Running(later, transport)
        running.wait_for(lambda: tries, "the first try")
        transport.lose()
        running.wait_for(lambda: transport.fates(Action.ACK), "the second try")
        assert running.stop().code is Exit.DONE
        assert transport.fates(Action.REQUEUE) == [0]

    @forms
    @pytest.mark.parametrize("promises", [PROMISES, OUTLIVING])
    def test_D_11_a_stop_without_a_connection_begins_no_more(self, form: str, promises: Promises) -> None:
        """No verdict can be carried out, so what is held comes again, and would be done twice."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(4), promises=promises)
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=4)
        running.wait_for(lambda: transport.delivered == 4 and gate.started, "all received")
        transport.unreachable = BrokerUnreachable("not back yet")
        transport.lose()
        running.wait_for(lambda: running.notebook.facts(events.LOST), "the loss")
        running.runner.stop("SIGTERM")
        running.wait_for(lambda: running.notebook.facts(events.STOPPING), "the drain")
        gate.free.set()
        ending = running.ending
        assert (ending.code, gate.started, gate.ended) == (Exit.RETURNED, [b"0"], [b"0"])
        assert (ending.counters.ack, ending.counters.stale) == (0, 1)
        returned = 4 if promises.late_results else 1  # without it, the others went back at once
        assert f"{returned} unfinished message" in ending.reason

    def test_without_the_promise_the_same_loss_is_a_second_run(self) -> None:
        """Negative control: the broker has them back, and late results are settled nowhere."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(2))
        running = Running(gate.sync, transport, concurrency=2, prefetch=2)
        running.wait_for(lambda: len(gate.started) == 2, "two at work")
        transport.lose()
        running.wait_for(lambda: transport.opened == 2, "a second connection")
        gate.free.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 2, "two acks")
        # One worker may have done both before the other has seen that the gate is open.
        running.wait_for(lambda: running.runner.counters.stale == 2, "two late results")
        running.stop()
        assert len(gate.started) == 4


class TestAtMostOnce:
    @forms
    def test_what_was_received_is_handled_although_the_connection_is_gone(self, form: str) -> None:
        """The message is nowhere else: thrown away, it would be lost."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(4), promises=AT_MOST_ONCE)
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=4)
        running.wait_for(lambda: transport.delivered == 4 and gate.started, "all received")
        transport.lose()
        gate.free.set()
        running.wait_for(lambda: len(gate.ended) == 4, "all handled")
        assert running.stop().code is Exit.DONE
        assert gate.ended == bodies(4)

    def test_a_stop_without_a_connection_still_counts_what_was_handled(self) -> None:
        """The verdict was on its way when the connection broke; it needs no broker."""

        class BreaksAtAVerdict(ScriptedTransport):
            def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
                if work and self.unreachable is None:
                    self.unreachable = BrokerUnreachable("not back yet")
                    self.lose()
                return super().settle(work)

        transport = BreaksAtAVerdict(b"1", promises=AT_MOST_ONCE)
        running = Running(yes, transport)
        running.wait_for(lambda: running.notebook.facts(events.LOST), "the loss")
        ending = running.stop()
        assert (ending.code, ending.counters.handled) == (Exit.DONE, 1)


class TestLeases:
    @forms
    def test_what_was_taken_back_is_not_started(self, form: str) -> None:
        """K4: a partition that went away takes its unstarted deliveries along; the rest is handled."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(4))
        transport.with_leases = True
        running = Running(getattr(gate, form), transport, concurrency=1, prefetch=4)
        running.wait_for(lambda: transport.delivered == 4 and gate.started, "all received")
        for tag in (2, 3):
            transport.leases[tag].end()
        gate.free.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 2, "the others")
        ending = running.stop()
        assert (ending.code, gate.started) == (Exit.DONE, [b"0", b"3"])
        assert sorted(transport.left) == [1, 2]
        assert running.runner.counters.stale == 0
        told = [one for one in running.notebook.settled_ if isinstance(one.outcome, Revoked)]
        assert [one.verdict.action for one in told] == [Action.LEAVE, Action.LEAVE]

    def test_a_result_that_comes_after_the_lease_is_stale(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(b"1")
        transport.with_leases = True
        running = Running(gate.sync, transport)
        running.wait_for(lambda: gate.started, "it at work")
        transport.leases[1].end()
        gate.free.set()
        running.wait_for(lambda: running.runner.counters.stale == 1, "a stale result")
        running.stop()
        assert transport.fates(Action.ACK) == []

    def test_a_delayed_requeue_gives_its_room_back(self) -> None:
        """Waiting for its time would keep a slot for a message that is not ours any more."""
        transport = ScriptedTransport(b"revoked", b"next")
        transport.with_leases = True
        policy = Policy(on_failure=OnFailure.REQUEUE)  # the first delay is a second
        synced: list[bytes] = []

        def only_next(message: bytes) -> bool:
            synced.append(message)
            if message == b"revoked":
                raise Retry(after=3600)
            return True

        running = Running(only_next, transport, prefetch=1, policy=policy)
        running.wait_for(lambda: synced == [b"revoked"], "the first")
        transport.leases[1].end()
        running.wait_for(lambda: transport.fates(Action.ACK), "the next one")
        running.stop()
        assert synced == [b"revoked", b"next"]


class TestGivenUp:
    def test_D_11_the_transport_is_told_what_nobody_will_handle(self) -> None:
        """A transport that can give a message back as it came must know which."""
        gate = Gate()
        transport = ScriptedTransport(*bodies(3))
        running = Running(gate.sync, transport, prefetch=3, lifecycle=Lifecycle(drain_timeout=0.05))
        running.wait_for(lambda: gate.started and transport.delivered == 3, "three received")
        ending = running.stop()
        assert ending.code is Exit.RETURNED
        assert sorted(transport.left) == [0, 1, 2]
        left = [one for one in running.notebook.settled_ if isinstance(one.outcome, Interrupted)]
        assert len(left) == 3
        gate.free.set()

    def test_D_17_a_fatal_exit_takes_nothing_in_before_it_settles(self) -> None:
        """What a broker pushes into the room of a late ack nobody would handle: it would lose its retry."""

        class Watching(ScriptedTransport):
            settled_while_taking = 0

            def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
                self.settled_while_taking += bool(work) and not self._stopped
                return super().settle(work)

        other = Gate()

        def fails(message: bytes) -> bool:
            if message != b"0":
                return other.sync(message)
            while not other.started:
                time.sleep(0.001)
            raise ZeroDivisionError

        transport = Watching(*bodies(8))
        running = Running(fails, transport, concurrency=2, prefetch=4)
        running.wait_for(lambda: running.notebook.facts(events.FATAL), "the fatal outcome")
        other.free.set()
        assert running.ending.code is Exit.FATAL
        assert transport.fates(Action.ACK) == [1]
        assert (transport.delivered, transport.settled_while_taking) == (4, 0)


class TestNotices:
    def test_what_a_transport_saw_is_logged_once(self) -> None:
        transport = ScriptedTransport()
        running = Running(yes, transport)
        transport.notices.append(Notice("queue.busy", logging.WARNING, "the file is locked", {"tries": 3}))
        running.wait_for(lambda: not transport.notices, "the notice")
        running.stop()
        assert running.notebook.facts("queue.busy") == [{"tries": 3}]
        assert running.notebook.texts("queue.busy") == ["the file is locked"]


class TestTold:
    def test_R_000_45_a_reconnect_says_how_long_it_was_away_and_how_often_it_tried(self) -> None:
        now = [0.0]
        transport = ScriptedTransport(b"1")
        running = Running(yes, transport, clock=lambda: now[0], bounds=Bounds())
        running.wait_for(lambda: transport.fates(Action.ACK), "the ack")
        transport.lose()
        running.wait_for(lambda: running.notebook.facts(events.LOST), "the loss")
        now[0] += 2.5
        running.wait_for(lambda: transport.opened == 2, "a second connection")
        running.wait_for(lambda: len(running.notebook.facts(events.READY)) == 2, "ready again")
        running.stop()
        first, again = running.notebook.facts(events.READY)
        assert (first["away_ms"], first["connect_attempts"]) == (0, 1)
        assert (again["away_ms"], again["connect_attempts"]) == (2500, 2)
