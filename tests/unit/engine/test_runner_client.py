"""The pump and a client that fails for good, stays away, or takes a part back (K4, X6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.policy import OnFailure, Policy
from chronicle.core.settlement import Fate, Settlement
from chronicle.engine.job import Exit, Lifecycle
from chronicle.errors import CannotKeep, ClientFailed, Retry
from chronicle.telemetry import events
from chronicle.transports.lanes import Lanes
from support.running import Gate, Running
from support.scripted import ScriptedTransport

forms = pytest.mark.parametrize("form", ["sync", "sync_async"])


def yes(message: bytes) -> bool:
    return True


class Failing(ScriptedTransport):
    """Its client fails for good when the test says so: once, or from then on."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__(*bodies)
        self.failure: ClientFailed | None = None
        self.in_settle = False
        self.for_good = False

    def fail(self, error: ClientFailed, *, for_good: bool, in_settle: bool = False) -> None:
        self.for_good, self.in_settle = for_good, in_settle
        self.failure = error
        self.wake()

    def _raise(self) -> None:
        if (error := self.failure) is not None:
            if not self.for_good:
                self.failure = None
            raise error

    def open(self, stopping: Callable[[], bool]) -> int | None:
        if self.for_good:
            self._raise()
        return super().open(stopping)

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        if not self.in_settle:
            self._raise()
        return super().receive(room, timeout)

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        settled = super().settle(work)
        if self.in_settle and self._open:
            self._raise()
        return settled


class TestClientFailed:
    @forms
    @pytest.mark.parametrize(
        ("error", "code"),
        [(ClientFailed("fenced for good"), Exit.UNREACHABLE), (CannotKeep("nobody takes it"), Exit.FATAL)],
    )
    def test_a_run_whose_client_has_failed_ends(self, form: str, error: ClientFailed, code: Exit) -> None:
        """002, X6: nothing is retried; what runs gets a moment, and is settled because that still works."""
        gate = Gate()
        transport = Failing(b"0", b"1", b"2", b"3")
        running = Running(getattr(gate, form), transport, concurrency=2, prefetch=4)
        running.wait_for(lambda: len(gate.started) == 2, "two at work")
        transport.fail(error, for_good=False)
        running.wait_for(lambda: running.notebook.facts(events.FAILED), "the failure")
        gate.free.set()
        ending = running.ending
        assert (ending.code, ending.reason) == (code, str(error))
        assert running.notebook.texts(events.FAILED) == [str(error)]
        assert sorted(transport.fates(Action.ACK)) == [0, 1]
        assert sorted(gate.started) == [b"0", b"1"]
        assert [message.number for message in transport.queue] == [2, 3]
        assert (transport.opened, ending.counters.reconnects, ending.counters.inflight) == (1, 0, 0)

    @pytest.mark.parametrize("in_settle", [False, True])
    def test_one_that_takes_nothing_more_ends_too(self, in_settle: bool) -> None:
        """Everything stays with the broker; nothing hangs, and nothing is asked again and again."""
        gate = Gate()
        transport = Failing(b"0", b"1", b"2")
        running = Running(gate.sync, transport, concurrency=1, prefetch=3)
        running.wait_for(lambda: gate.started, "one at work")
        transport.fail(ClientFailed("fenced for good"), for_good=True, in_settle=in_settle)
        running.wait_for(lambda: running.notebook.facts(events.FAILED), "the failure")
        gate.free.set()
        ending = running.ending
        assert (ending.code, ending.counters.inflight) == (Exit.UNREACHABLE, 0)
        assert len(running.notebook.texts(events.FAILED)) == 1
        assert transport.fates(Action.ACK) == []
        assert [message.number for message in transport.queue] == [0, 1, 2]

    def test_one_that_fails_when_it_connects(self) -> None:
        transport = Failing(b"0")
        transport.fail(ClientFailed("no such mechanism"), for_good=True)
        running = Running(yes, transport)
        assert running.ending.code is Exit.UNREACHABLE
        assert running.notebook.texts(events.FAILED) == ["no such mechanism"]

    def test_one_that_fails_during_a_drain(self) -> None:
        """A drain that cannot be finished is not a success."""
        gate = Gate()
        transport = Failing(b"0", b"1")
        running = Running(gate.sync, transport, prefetch=2)
        running.wait_for(lambda: gate.started, "one at work")
        running.runner.stop("the test is over")
        running.wait_for(lambda: running.notebook.facts(events.STOPPING), "the drain")
        transport.fail(ClientFailed("fenced for good"), for_good=True)
        running.wait_for(lambda: running.notebook.facts(events.FAILED), "the failure")
        gate.free.set()
        assert running.ending.code is Exit.UNREACHABLE

    def test_a_stuck_syncer_does_not_keep_it(self) -> None:
        """X4: others get a moment, not for ever."""
        gate = Gate()
        transport = Failing(b"0")
        running = Running(gate.sync, transport)
        running.wait_for(lambda: gate.started, "it at work")
        transport.fail(CannotKeep("nobody takes it"), for_good=False)
        ending = running.ending
        gate.free.set()
        assert (ending.code, ending.stuck) == (Exit.FATAL, True)
        assert [message.number for message in transport.queue] == [0]


class Wandering(ScriptedTransport):
    """Its client reconnects by itself."""

    away = 0.0


class TestAway:
    @pytest.mark.parametrize("give_up_after", [0.0, 10.0])
    def test_a_broker_that_stays_away_is_given_up(self, give_up_after: float) -> None:
        """D-6: as if the engine had reconnected; 0 is never."""
        transport = Wandering(b"0")
        running = Running(yes, transport, lifecycle=Lifecycle(give_up_after=give_up_after))
        running.wait_for(lambda: transport.fates(Action.ACK), "it at work")
        transport.away = 9.0
        turns = transport.turns
        running.wait_for(lambda: transport.turns >= turns + 3, "a few turns")
        assert not running.is_over
        transport.away = 11.0
        if give_up_after:
            assert running.ending.code is Exit.UNREACHABLE
            assert running.notebook.texts(events.FAILED) == ["nowhere: out of reach for 11s, given up"]
        else:
            turns = transport.turns
            running.wait_for(lambda: transport.turns >= turns + 3, "a few turns")
            assert running.stop().code is Exit.DONE


def lane_of(delivery: Delivery) -> bytes:
    return delivery.body[:1]


class TestLanes:
    @forms
    def test_a_lane_is_handled_in_order_through_its_failures(self, form: str) -> None:
        """D-23, with the real engine: every message fails once, and nobody overtakes within a lane."""
        lock = threading.Lock()
        seen: list[bytes] = []
        at_work: set[bytes] = set()

        def sync(message: bytes) -> bool:
            with lock:
                assert message[:1] not in at_work, "two of a lane at once"
                at_work.add(message[:1])
            with lock:
                seen.append(message)
                at_work.discard(message[:1])
                if seen.count(message) == 1:
                    raise Retry(after=0.001)
            return True

        async def sync_async(message: bytes) -> bool:
            return sync(message)

        bodies = [b"%c%d" % (lane, n) for n in range(10) for lane in b"abc"]
        transport = ScriptedTransport(*bodies)
        running = Running(
            {"sync": sync, "sync_async": sync_async}[form],
            Lanes(transport, lane_of),
            concurrency=6,
            prefetch=9,
        )
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 30, "all")
        ending = running.stop()
        assert ending.code is Exit.DONE
        for lane in b"abc":
            own = [b"%c%d" % (lane, n) for n in range(10) for _ in range(2)]
            assert [message for message in seen if message[0] == lane] == own
        assert (ending.counters.requeued, ending.counters.ack, ending.counters.received) == (30, 30, 60)
        assert transport.most_held <= 9

    def test_what_is_taken_back_while_it_waits_for_its_next_try_is_let_go(self) -> None:
        """K4: its lane goes on, its room is free, and the counters know of nothing that is left."""
        transport = ScriptedTransport(b"a0", b"a1")
        transport.with_leases = True
        tried: list[bytes] = []

        def sync(message: bytes) -> bool:
            tried.append(message)
            if message == b"a0":
                raise Retry(after=3600)
            return True

        policy = Policy(on_failure=OnFailure.REQUEUE)
        running = Running(sync, Lanes(transport, lane_of), prefetch=2, policy=policy)
        running.wait_for(lambda: running.runner.counters.requeued == 1, "the failed try")
        transport.leases[1].end()
        running.wait_for(lambda: transport.fates(Action.ACK) == [1], "the next of its lane")
        ending = running.stop()
        assert (ending.code, tried) == (Exit.DONE, [b"a0", b"a1"])
        assert ending.counters.inflight == 0

    def test_what_was_taken_back_before_it_began_comes_back_unrun(self) -> None:
        gate = Gate()
        transport = ScriptedTransport(b"a0", b"b0", b"a1", b"b1")
        transport.with_leases = True
        running = Running(gate.sync, Lanes(transport, lane_of), concurrency=1, prefetch=4)
        running.wait_for(lambda: transport.delivered == 4 and gate.started, "all received")
        assert [transport.leases[tag].begun for tag in (1, 2, 3, 4)] == [True, False, False, False]
        for tag in (2, 4):
            transport.leases[tag].end()
        gate.free.set()
        running.wait_for(lambda: transport.fates(Action.ACK) == [0, 2], "the other lane")
        ending = running.stop()
        assert (ending.code, gate.started) == (Exit.DONE, [b"a0", b"a1"])
        revoked = [one for one in running.notebook.settled_ if one.verdict.action is Action.LEAVE]
        assert [(one.delivery.body, one.fate) for one in revoked] == [(b"b0", Fate.STALE)]
        assert (ending.counters.received, ending.counters.inflight) == (3, 0)
