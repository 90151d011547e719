"""H1: whatever happens to a run, no message is lost, settled twice, or acked without its syncer's True.

Hypothesis plays broker, person and world against the real engine with real workers: it publishes, lets
syncers answer in any order and way, cuts the connection, refuses, cancels, and stops. The invariants are
checked all along and once more at the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.policy import OnException, OnFailure, Policy
from chronicle.engine.job import Exit, Limits
from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, DeadLetter, Drop, Retry
from chronicle.telemetry import events
from support.running import PATIENCE, Running
from support.scripted import Handle, ScriptedTransport

A_MOMENT = 0.02  # for a syncer to be called; when it is not, the rule does nothing

Answer = Callable[[], Any]


def answering(value: Any) -> Answer:
    return lambda: value


def raising(error: type[BaseException]) -> Answer:
    def throw() -> bool:
        raise error

    return throw


ANSWERS: dict[str, Answer] = {
    "true": answering(True),
    "false": answering(False),
    "nothing": answering(None),
    "raises": raising(ValueError),
    "retry": lambda: (_ for _ in ()).throw(Retry(after=0.001)),
    "dead-letter": raising(DeadLetter),
    "drop": raising(Drop),
}
GENTLE = ["true", "true", "true", "false", "retry", "dead-letter", "drop"]


class Call:
    """A syncer at work on one delivery, waiting for its answer."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.answered = threading.Event()
        self.answer: Answer = answering(True)


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.changed = threading.Condition()
        self.approved: Counter[Handle] = Counter()  # whose syncer returned True
        self.running_now = self.most_running = 0
        self.is_ending = False
        self.harsh = False  # an answer that ends the run was given

    @initialize(
        concurrency=st.integers(1, 3),
        prefetch=st.integers(1, 5),
        on_exception=st.sampled_from(OnException),
        on_failure=st.sampled_from([OnFailure.REQUEUE_ONCE, OnFailure.DEAD_LETTER]),
        is_async=st.booleans(),
        waiting=st.integers(0, 10),
        limits=st.builds(
            Limits, rate=st.sampled_from([float("inf"), 100.0]), brake=st.sampled_from([0, 0, 1, 2, 3])
        ),
    )
    def start(
        self,
        concurrency: int,
        prefetch: int,
        on_exception: OnException,
        on_failure: OnFailure,
        is_async: bool,
        waiting: int,
        limits: Limits,
    ) -> None:
        self.concurrency, self.prefetch, self.brake = concurrency, prefetch, limits.brake
        self.on_exception = on_exception
        self.transport = ScriptedTransport(*(b"%d" % number for number in range(waiting)))
        self.run = Running(
            self.sync_async if is_async else self.sync,
            self.transport,
            policy=Policy(on_failure=on_failure, on_exception=on_exception),
            concurrency=concurrency,
            prefetch=prefetch,
            limits=limits,
        )

    # --- the syncer ---------------------------------------------------------------------------------

    def sync(self, message: bytes, delivery: Delivery) -> Any:
        call = self.called(delivery)
        assert call.answered.wait(PATIENCE)
        return self.returned(call)

    async def sync_async(self, message: bytes, delivery: Delivery) -> Any:
        call = self.called(delivery)
        while not call.answered.is_set():
            await asyncio.sleep(0.001)
        return self.returned(call)

    def called(self, delivery: Delivery) -> Call:
        call = Call(delivery.handle)
        with self.changed:
            self.running_now += 1
            self.most_running = max(self.most_running, self.running_now)
            self.calls.append(call)
            if self.is_ending:
                call.answered.set()
            self.changed.notify_all()
        return call

    def returned(self, call: Call) -> Any:
        with self.changed:
            self.running_now -= 1
        answer = call.answer()
        if answer is True:
            with self.changed:
                self.approved[call.handle] += 1
        return answer

    def answer(self, choice: int, name: str) -> None:
        waiting = self.transport.queue or self.transport.held
        moment = A_MOMENT if waiting and not self.run.is_over else 0
        with self.changed:
            if not self.changed.wait_for(lambda: self.calls, moment):
                return
            call = self.calls.pop(choice % len(self.calls))
        call.answer = ANSWERS[name]
        call.answered.set()

    # --- what can happen ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        first = self.transport.published
        self.transport.publish(*(b"%d" % number for number in range(first, first + count)))

    @rule(answers=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(GENTLE)), min_size=1, max_size=6))
    def let_syncers_answer(self, answers: list[tuple[int, str]]) -> None:
        for choice, name in answers:
            self.answer(choice, name)

    @rule(trouble=st.sampled_from(["lost", "cancelled", "away", "refused"]), times=st.integers(1, 3))
    def break_the_connection(self, trouble: str, times: int) -> None:
        if trouble == "away":
            self.transport.refusals.extend([BrokerUnreachable("away")] * times)
        # Before the first connection a refusal would end the run, and rightly.
        if trouble == "refused" and self.run.runner.counters.received:
            self.transport.refusals.extend([BrokerRefused("no such queue", "declare it")] * times)
        self.transport.lose(ConnectionLost(trouble))

    @precondition(lambda self: self.transport.published > 10)
    @rule(choice=st.integers(0, 2), name=st.sampled_from(["raises", "raises", "nothing"]))
    def let_a_syncer_break_its_contract(self, choice: int, name: str) -> None:
        self.harsh = self.harsh or name == "nothing" or self.on_exception is OnException.EXIT
        self.answer(choice, name)

    @precondition(lambda self: self.transport.published > 15)
    @rule()
    def stop(self) -> None:
        self.run.runner.stop("SIGTERM")

    # --- what must be true --------------------------------------------------------------------------

    @invariant()
    def bounded(self) -> None:
        # On the brake, what has failed takes nobody's place.
        failed = len(self.run.notebook.facts(events.PROBE_FAILED))
        extra = 2 * self.brake + self.concurrency + failed if self.brake else 0
        assert self.transport.most_held <= self.prefetch + extra
        assert self.most_running <= self.concurrency

    @invariant()
    def never_settled_twice_nor_in_another_epoch(self) -> None:
        asked = list(self.transport.asked)
        assert len(asked) == len(set(asked)), "one settle per epoch and tag"
        assert all(carried.handle.epoch == carried.epoch for carried in list(self.transport.carried))

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        with self.changed:
            self.is_ending = True
            for call in self.calls:
                call.answered.set()
        ending = self.run.stop()
        assert ending.code in (
            (Exit.DONE, Exit.RETURNED, Exit.FATAL) if self.harsh else (Exit.DONE, Exit.RETURNED)
        )
        assert not ending.stuck
        self.bounded()
        self.never_settled_twice_nor_in_another_epoch()
        transport, counters = self.transport, ending.counters
        acked = [carried.handle for carried in transport.carried if carried.action is Action.ACK]
        assert all(self.approved[handle] == 1 for handle in acked), "an ack needs its syncer's True"
        gone = (Action.ACK, Action.DEAD_LETTER, Action.DROP)
        ended = [carried.handle.number for carried in transport.carried if carried.action in gone]
        there = [message.number for message in transport.queue]
        assert sorted(ended + there) == list(range(transport.published)), "nothing lost, nothing doubled"
        assert not transport.held
        assert counters.received == transport.delivered
        assert counters.ack == len(acked)
        assert counters.requeued == len(transport.fates(Action.REQUEUE))
        assert counters.dead_lettered == len(transport.fates(Action.DEAD_LETTER))
        assert counters.dropped == len(transport.fates(Action.DROP))
        assert counters.stale == len(transport.asked) - len(transport.carried)


def test_H1_nothing_is_lost_or_settled_twice() -> None:
    run_state_machine_as_test(
        World, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )
