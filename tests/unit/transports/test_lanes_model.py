"""D-23: whatever happens, a lane is handled in order, nothing is lost, and what waits is bounded.

Hypothesis plays the engine and the broker against the lanes: it receives, answers in any order and way, lets
time pass, takes messages back, cuts the connection and stops.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
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
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ConnectionLost
from chronicle.transports.lanes import Lanes
from chronicle.transports.seam import Closing
from support.log_broker import LOG, LogBroker, lane_of, number_of

NAMES = st.sampled_from(["a", "a", "b", "c", "-"])
FINAL = (Action.ACK, Action.DROP, Action.DEAD_LETTER)
AGAIN = (Action.REQUEUE, Action.RETRY)


class Traffic(RuleBasedStateMachine):
    @initialize(
        prefetch=st.integers(1, 6),
        parks=st.integers(0, 4),
        requeues=st.booleans(),
        outlives=st.booleans(),
        stops=st.booleans(),
    )
    def start(self, prefetch: int, parks: int, requeues: bool, outlives: bool, stops: bool) -> None:
        self.stops = stops  # in the end, in the middle of things
        self.now = 0.0
        self.prefetch = prefetch
        self.broker = LogBroker(
            promises=replace(LOG, parks=parks, requeues=requeues, counts=requeues, late_results=outlives)
        )
        self.lanes = Lanes(self.broker, lane_of, clock=lambda: self.now)
        self.lanes.open(lambda: False)
        self.held: list[Delivery] = []  # with the engine, and no verdict given
        self.given: set[Settlement] = set()  # … and given, but not known to be final
        self.stopped = False

    @property
    def engine_holds(self) -> list[Delivery]:
        return [*self.held, *(settlement.delivery for settlement in self.given)]

    def room(self) -> int:
        return self.prefetch - len(self.engine_holds)

    def receive_some(self, room: int) -> list[Delivery]:
        before = {number_of(one) for one in self.held if one.lease is not None and not one.lease.over}
        batch = list(self.lanes.receive(room, 0.0))
        assert len(batch) <= room
        for delivery in batch:
            number, lane = number_of(delivery), lane_of(delivery)
            assert not self.stopped
            assert delivery.lease is not None
            assert not delivery.lease.over
            assert number not in before, "offered twice"
            assert number not in self.broker.settled
            others = [one for one, name in enumerate(self.broker.lanes[:number]) if name == lane]
            assert lane is None or all(one in self.broker.settled for one in others), "overtaken"
            before.add(number)
            assert delivery.lease.begin()
        self.held += batch
        return batch

    def settle(self, *work: Settlement) -> None:
        self.given.update(work)
        for settlement in self.lanes.settle(work):
            assert settlement in self.given, "told twice, or never asked for"
            assert settlement.fate is not Fate.OPEN
            self.given.remove(settlement)

    # --- what may happen ----------------------------------------------------------------------------

    @rule(names=st.lists(NAMES, max_size=6))
    def publish(self, names: list[str]) -> None:
        self.broker.publish(*names)

    @rule(share=st.integers(0, 6))
    def receive(self, share: int) -> None:
        self.receive_some(min(share, self.room()))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.held), min_size=1, unique=True))
        work = []
        for delivery in some:
            self.held.remove(delivery)
            action = data.draw(st.sampled_from((*FINAL, *AGAIN)))
            delay = data.draw(st.sampled_from((0.0, 1.0, 5.0))) if action in AGAIN else 0.0
            if delivery.lease is not None and delivery.lease.over and data.draw(st.booleans()):
                action = Action.LEAVE
            work.append(Settlement(delivery, Synced(), Verdict(action, "", delay)))
        self.settle(*work)

    @rule()
    def confirm(self) -> None:
        self.broker.confirm()
        self.settle()

    @rule(seconds=st.sampled_from((0.1, 1.0, 4.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(what=st.sampled_from(["a", "a", "b", "c", "connection"]))
    def lose(self, what: str) -> None:
        if what != "connection":
            self.broker.revoke(what)
            return
        self.broker.loses = True
        with pytest.raises(ConnectionLost):
            self.lanes.receive(self.room(), 0.0)
        self.broker.loses = False
        if self.broker.promises.late_results:
            self.lanes.close(Closing.LOST)
            self.lanes.open(lambda: False)
            return
        self.lanes.close(Closing.LOST)
        late = [Settlement(delivery, Synced(), Verdict(Action.REQUEUE, "")) for delivery in self.held]
        self.held.clear()
        self.given.clear()
        self.lanes.open(lambda: False)
        assert [one.fate for one in self.lanes.settle(late)] == [Fate.STALE] * len(late)

    @invariant()
    def one_of_a_lane(self) -> None:
        ours = [one for one in self.engine_holds if one.lease is not None and not one.lease.over]
        names = [lane for one in ours if (lane := lane_of(one)) is not None]
        assert len(names) == len(set(names))

    @invariant()
    def bounded(self) -> None:
        assert len(self.broker.held) <= self.prefetch + self.broker.promises.parks

    @invariant()
    def settled_once(self) -> None:
        assert all(len(actions) == 1 for actions in self.broker.settled.values())

    def teardown(self) -> None:
        """A run that ends, or one more that has all the time it needs: everything is settled, once."""
        if not hasattr(self, "lanes"):
            return
        if self.stops:
            self.stop()
        for _ in range(10 * len(self.broker.lanes) + 10):
            self.settle(*(Settlement(one, Synced(), Verdict(Action.ACK, "")) for one in self.held))
            self.held.clear()
            self.confirm()
            self.now += 5.0
            self.receive_some(self.room())
        assert sorted(self.broker.settled) == list(range(len(self.broker.lanes)))
        assert not self.given
        assert not self.broker.held
        assert self.lanes.is_empty() is True
        assert self.broker.rooms[-1] == self.prefetch, "something is still counted as kept"

    def stop(self) -> None:
        self.lanes.stop(0.0)
        self.stopped = True
        self.settle()
        assert self.receive_some(10) == []
        for delivery in self.held:
            action = Action.ACK if number_of(delivery) % 2 else Action.RETRY
            self.settle(Settlement(delivery, Synced(), Verdict(action, "", 1.0)))
        self.held.clear()
        self.now += 5.0
        assert self.receive_some(10) == []
        self.confirm()
        assert not self.given, "a drain would not end"
        self.lanes.close()
        assert sorted([*self.broker.waiting, *self.broker.settled]) == list(range(len(self.broker.lanes)))
        self.stopped = False
        self.lanes.open(lambda: False)


def test_lanes_stay_in_order_whatever_happens() -> None:
    run_state_machine_as_test(Traffic, settings=settings(max_examples=200, stateful_step_count=40))
