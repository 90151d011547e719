"""The pump with limits: a rate, and a brake for outages."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from time import monotonic

import pytest

from chronicle.core.outcome import Action
from chronicle.core.policy import OnFailure, Policy
from chronicle.engine.brake import HOPELESS
from chronicle.engine.job import Bounds, Exit, Limits
from chronicle.errors import DeadLetter, Retry
from chronicle.telemetry import events
from support.running import Gate, Running
from support.scripted import PROMISES, ScriptedTransport

forms = pytest.mark.parametrize("form", ["sync", "sync_async"])


def bodies(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


class Crm:
    """A CRM that is down until it is up; messages in `poison` fail in any case."""

    def __init__(self, *poison: bytes) -> None:
        self.up = threading.Event()
        self.poison = poison
        self.calls: list[bytes] = []
        self.times: list[float] = []

    def sync(self, message: bytes) -> bool:
        self.calls.append(message)
        self.times.append(monotonic())
        return self.up.is_set() and message not in self.poison

    async def sync_async(self, message: bytes) -> bool:
        return self.sync(message)


class TestBrake:
    @forms
    def test_nothing_that_failed_in_an_outage_was_tried(self, form: str) -> None:
        crm = Crm()
        transport = ScriptedTransport(*bodies(20))
        running = Running(getattr(crm, form), transport, concurrency=2, prefetch=4, limits=Limits(brake=5))
        running.wait_for(lambda: running.notebook.facts(events.PROBE_FAILED), "a try that failed")
        assert running.runner.counters.brake == "5 messages in a row failed: the syncer returned False"
        assert transport.most_held <= 4 + 2 * 5
        counters = running.runner.counters
        running.wait_for(lambda: counters.held + counters.inflight == counters.received, "all are counted")
        crm.up.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 20, "twenty acks")
        assert running.runner.counters.brake == ""
        running.wait_for(lambda: counters.held == 0, "none is held")
        ending = running.stop()
        assert (ending.code, ending.counters.nack, ending.counters.received) == (Exit.DONE, 0, 20)
        assert [len(running.notebook.facts(name)) for name in (events.BRAKED, events.RESUMED)] == [1, 1]

    def test_fewer_than_that_get_what_the_policy_says(self) -> None:
        transport = ScriptedTransport(*bodies(4))
        running = Running(Crm().sync, transport, bounds=Bounds(until_empty=True), limits=Limits(brake=5))
        ending = running.ending
        assert (ending.code, ending.counters.requeued, ending.counters.dead_lettered) == (Exit.DONE, 4, 4)
        assert not running.notebook.facts(events.BRAKED)

    def test_messages_that_fail_by_themselves_do_not_stop_the_others(self) -> None:
        """One that was never tried is tried first, so a success is found behind them."""
        crm = Crm(*bodies(6))
        crm.up.set()
        transport = ScriptedTransport(*bodies(12))
        running = Running(crm.sync, transport, bounds=Bounds(until_empty=True), limits=Limits(brake=5))
        ending = running.ending
        assert (ending.code, ending.counters.ack, ending.counters.dead_lettered) == (Exit.DONE, 6, 6)

    def test_a_success_between_them_is_no_row(self) -> None:
        crm = Crm(*bodies(20)[::2])
        crm.up.set()
        transport = ScriptedTransport(*bodies(20))
        policy = Policy(OnFailure.DEAD_LETTER)
        running = Running(
            crm.sync, transport, policy=policy, bounds=Bounds(until_empty=True), limits=Limits(brake=3)
        )
        assert running.ending.counters.dead_lettered == 10
        assert not running.notebook.facts(events.BRAKED)

    def test_what_a_syncer_asked_for_is_no_outage(self) -> None:
        def refuse(message: bytes) -> bool:
            raise DeadLetter("no list for it")

        transport = ScriptedTransport(*bodies(10))
        running = Running(refuse, transport, bounds=Bounds(until_empty=True), limits=Limits(brake=3))
        assert running.ending.counters.dead_lettered == 10
        assert not running.notebook.facts(events.BRAKED)

    def test_whoever_acknowledges_failures_does_not_wait(self) -> None:
        transport = ScriptedTransport(*bodies(10))
        policy = Policy(OnFailure.ACK)
        running = Running(
            Crm().sync, transport, policy=policy, bounds=Bounds(until_empty=True), limits=Limits(brake=3)
        )
        assert running.ending.counters.ack == 10

    def test_another_try_that_was_asked_for_counts(self) -> None:
        def busy(message: bytes) -> bool:
            raise Retry(f"busy with {message!r}")

        transport = ScriptedTransport(*bodies(10))
        running = Running(busy, transport, limits=Limits(brake=3))
        running.wait_for(lambda: running.notebook.facts(events.BRAKED), "the brake")
        ending = running.stop()
        assert (ending.code, ending.counters.nack) == (Exit.RETURNED, 0)

    def test_a_stop_gives_everything_back_at_once(self) -> None:
        transport = ScriptedTransport(*bodies(10))
        running = Running(Crm().sync, transport, limits=Limits(brake=3))
        running.wait_for(lambda: running.notebook.facts(events.BRAKED), "the brake")
        ending = running.stop("SIGTERM")
        assert ending.code is Exit.RETURNED
        assert "intake was paused: 3 messages in a row failed" in ending.reason
        assert len(transport.queue) == 10
        assert not transport.carried

    @pytest.mark.parametrize("bounds", [Bounds(until_empty=True), Bounds(idle_timeout=1.0)])
    def test_a_run_that_should_end_by_itself_does_not_wait_for_ever(self, bounds: Bounds) -> None:
        """A cron job without `--max-time`: the next one tries again."""
        transport = ScriptedTransport(*bodies(10))
        hasty = lambda: 100 * monotonic()  # noqa: E731 - a clock
        running = Running(Crm().sync, transport, bounds=bounds, limits=Limits(brake=3), clock=hasty)
        ending = running.ending
        assert ending.code is Exit.RETURNED
        assert "given up for now; intake was paused: 3 messages in a row failed" in ending.reason
        assert len(running.notebook.facts(events.PROBE_FAILED)) == HOPELESS
        assert len(transport.queue) == 10
        assert not transport.carried

    def test_what_had_begun_before_does_not_hold_up_the_tries(self) -> None:
        gate, crm = Gate(), Crm()

        def sync(message: bytes) -> bool:
            return gate.sync(message) if message == b"0" else crm.sync(message)

        transport = ScriptedTransport(*bodies(10))
        running = Running(sync, transport, concurrency=2, prefetch=4, limits=Limits(brake=3))
        running.wait_for(lambda: running.notebook.facts(events.PROBE_FAILED), "a try that failed")
        gate.free.set()
        running.wait_for(lambda: running.notebook.facts(events.RESUMED), "its success")
        crm.up.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 10, "ten acks")
        assert running.stop().code is Exit.DONE

    @pytest.mark.parametrize("late_results", [False, True])
    def test_a_lost_connection_on_the_brake(self, late_results: bool) -> None:
        crm = Crm()
        transport = ScriptedTransport(*bodies(10), promises=replace(PROMISES, late_results=late_results))
        running = Running(crm.sync, transport, limits=Limits(brake=3))
        running.wait_for(lambda: running.notebook.facts(events.BRAKED), "the brake")
        transport.lose()
        running.wait_for(lambda: transport.opened == 2, "a second connection")
        crm.up.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 10, "ten acks")
        ending = running.stop()
        assert (ending.code, ending.counters.dead_lettered) == (Exit.DONE, 0)

    def test_what_waits_longer_than_the_broker_allows_goes_back(self) -> None:
        """Otherwise it would take back everything that is held, counted."""
        crm = Crm()
        transport = ScriptedTransport(*bodies(3), promises=replace(PROMISES, patience=1.0))
        running = Running(crm.sync, transport, limits=Limits(brake=3))
        running.wait_for(lambda: transport.fates(Action.REQUEUE), "one that went back")
        crm.up.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 3, "three acks")
        assert running.stop().counters.dead_lettered == 0


class TestRate:
    @forms
    @pytest.mark.parametrize("concurrency", [1, 5])
    def test_starts_are_spread(self, form: str, concurrency: int) -> None:
        """A starved machine makes it slower, never faster; one start may be late, and the next on time."""
        crm = Crm()
        crm.up.set()
        running = Running(
            getattr(crm, form),
            ScriptedTransport(*bodies(15)),
            concurrency=concurrency,
            prefetch=2 * concurrency,
            bounds=Bounds(until_empty=True),
            limits=Limits(rate=20.0),
        )
        assert running.ending.counters.ack == 15
        assert crm.times[-1] - crm.times[0] >= 12 / 20

    def test_slow_syncers_do_not_save_up_for_a_burst(self) -> None:
        gate = Gate()
        times: list[float] = []

        async def sync(message: bytes) -> bool:
            times.append(monotonic())
            while not gate.free.is_set():
                await asyncio.sleep(0.002)
            return True

        transport = ScriptedTransport(*bodies(12))
        running = Running(sync, transport, prefetch=12, limits=Limits(rate=10.0))
        running.wait_for(lambda: times, "the first")
        running.wait_for(lambda: monotonic() - times[0] > 1.0, "a second in which ten might have begun")
        gate.free.set()
        running.wait_for(lambda: len(transport.fates(Action.ACK)) == 12, "twelve acks")
        assert times[-1] - times[1] >= 8 / 10
        assert running.stop().code is Exit.DONE

    def test_a_drain_goes_on_at_the_rate(self) -> None:
        crm = Crm()
        crm.up.set()
        transport = ScriptedTransport(*bodies(5))
        running = Running(crm.sync, transport, prefetch=5, limits=Limits(rate=20.0))
        running.wait_for(lambda: crm.calls, "the first")
        ending = running.stop()
        assert (ending.code, ending.counters.ack) == (Exit.DONE, 5)
        assert crm.times[-1] - crm.times[0] >= 3 / 20


def test_limits_change_nothing_about_verdicts() -> None:
    """With both limits on, what comes of each message is the same."""
    crm = Crm(b"3", b"4")
    crm.up.set()
    transport = ScriptedTransport(*bodies(10))
    running = Running(
        crm.sync, transport, concurrency=3, prefetch=6, bounds=Bounds(until_empty=True),
        limits=Limits(rate=200.0, brake=10, time_limit=30.0),
    )  # fmt: skip
    ending = running.ending
    assert (ending.counters.ack, ending.counters.requeued, ending.counters.dead_lettered) == (8, 2, 2)


@forms
def test_a_syncer_that_takes_long_is_named_once(form: str) -> None:
    """With its age and where it is, and nothing of its message."""
    gate, ahead = Gate(), 0.0
    running = Running(
        getattr(gate, form), ScriptedTransport(b'{"email": "zofia.canary@example.org"}'),
        clock=lambda: monotonic() + ahead,
    )  # fmt: skip
    running.wait_for(lambda: running.runner.counters.oldest > 0, "a syncer at work")
    assert not running.notebook.facts(events.SLOW)
    ahead = 60.0
    running.wait_for(lambda: running.notebook.facts(events.SLOW), "its name")
    assert running.runner.counters.oldest >= 60
    gate.free.set()
    running.wait_for(lambda: running.runner.counters.oldest == 0.0, "its end")
    running.stop()
    (facts,) = running.notebook.facts(events.SLOW)
    assert facts["age_ms"] >= 60_000
    assert f"in {form}" in facts["trace"]
    assert "zofia" not in str(running.notebook.events)
