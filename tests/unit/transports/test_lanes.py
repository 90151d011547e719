"""Lanes around a transport: who waits for whom, for how long, and what goes back (D-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ConnectionLost
from chronicle.transports.lanes import Lanes, no_lane
from chronicle.transports.seam import Closing, DeadLetterKeeper, Promises
from support.log_broker import LOG, LogBroker, lane_of, number_of

WINDOWED = replace(LOG, requeues=True, parks=0, counts=True)  # as Redis is
OUTLIVING = replace(WINDOWED, late_results=True)
AT_MOST_ONCE = replace(WINDOWED, settles=False, retries=False, dead_letters=DeadLetterKeeper.NOBODY)


class Bench:
    """Lanes around a log, with a clock of their own."""

    def __init__(self, *lanes: str, promises: Promises = LOG) -> None:
        self.now = 100.0
        self.broker = LogBroker(*lanes, promises=promises)
        self.lanes = Lanes(self.broker, lane_of, clock=lambda: self.now)
        self.lanes.open(lambda: False)

    def receive(self, room: int = 10) -> list[Delivery]:
        return list(self.lanes.receive(room, 1.0))

    def settle(self, action: Action, *some: Delivery, delay: float = 0.0) -> list[Settlement]:
        work = [Settlement(one, Synced(), Verdict(action, "for the test", delay)) for one in some]
        return list(self.lanes.settle(work))


def numbers(batch: Sequence[Delivery]) -> list[int]:
    return [number_of(delivery) for delivery in batch]


def test_one_of_a_lane_at_a_time_and_all_others_at_once() -> None:
    bench = Bench("a", "a", "b", "-", "-", "a")
    first, *others = bench.receive()
    assert numbers([first, *others]) == [0, 2, 3, 4]
    assert bench.receive() == []
    assert [one.fate for one in bench.settle(Action.ACK, first)] == [Fate.DONE]
    (second,) = bench.receive()
    bench.settle(Action.DROP, second)
    assert numbers(bench.receive()) == [5]


def test_a_lane_waits_for_the_brokers_word() -> None:
    """A dead letter that is not confirmed may still come to nothing."""
    bench = Bench("a", "a")
    (first,) = bench.receive()
    assert bench.settle(Action.DEAD_LETTER, first) == []
    assert bench.receive() == []
    bench.broker.confirm()
    assert [one.delivery for one in bench.settle(Action.ACK)] == [first]
    assert numbers(bench.receive()) == [1]


@pytest.mark.parametrize("action", [Action.REQUEUE, Action.RETRY])
def test_another_try_keeps_the_lane(action: Action) -> None:
    bench = Bench("a", "a", "b")
    first, other = bench.receive()
    (told,) = bench.settle(action, first, delay=5.0)
    assert (told.fate, told.verdict.action) == (Fate.DONE, action)
    bench.settle(Action.ACK, other)
    bench.now += 4.9
    assert bench.receive() == []
    assert bench.broker.timeouts[-1] == pytest.approx(0.1)  # the wait ends when it is time
    assert bench.lanes.is_empty() is False
    bench.now += 0.2
    (again,) = bench.receive()
    assert again is not first
    assert (number_of(again), again.redelivered, again.counted, again.attempts) == (0, True, 1, 2)
    assert (again.handle, again.lease) == (first.handle, first.lease)
    bench.settle(Action.ACK, again)
    assert numbers(bench.receive()) == [1]
    assert bench.broker.settled == {2: [Action.ACK], 0: [Action.ACK]}


def test_another_try_without_a_delay_comes_with_the_next_turn() -> None:
    bench = Bench("-")
    (first,) = bench.receive()
    assert first.lease is not None
    first.lease.begin()
    bench.settle(Action.REQUEUE, first)
    assert not first.lease.begun
    assert numbers(bench.receive()) == [0]
    assert bench.broker.timeouts[-1] == 0.0  # what is here does not wait for the broker


def test_a_delay_is_no_longer_than_the_broker_waits() -> None:
    """RB15: an unsettled message would be taken away, and with it the connection."""
    bench = Bench("a", promises=replace(WINDOWED, holds=600.0))
    (told,) = bench.settle(Action.RETRY, *bench.receive(), delay=3600.0)
    assert told.verdict.delay == 600.0
    assert "held for at most 600s" in told.verdict.reason
    bench.now += 601
    assert numbers(bench.receive()) == [0]


def test_what_waits_takes_room_in_the_window() -> None:
    """Where the broker counts what is unsettled, nothing more would come anyway (D-7)."""
    bench = Bench("a", "a", "a", "b", "c", promises=WINDOWED)
    assert numbers(bench.receive(4)) == [0, 3]
    assert bench.receive(2) == []
    assert bench.broker.rooms == [4, 0]


def test_what_waits_beyond_the_window_is_bounded_by_number() -> None:
    bench = Bench(*["a"] * 20, "b")
    assert numbers(bench.receive(4)) == [0]
    for _ in range(5):
        bench.receive(3)
    assert len(bench.broker.held) == 4 + LOG.parks
    assert bench.broker.rooms[-1] == 0


def test_what_waits_beyond_the_window_is_bounded_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.transports.lanes.PARKED_BYTES", 10)  # bodies of three bytes
    bench = Bench(*["a"] * 20, promises=replace(LOG, parks=1000))
    for _ in range(3):
        bench.receive(4)
    assert len(bench.broker.held) == 8  # the first four waited for nothing, the next went beyond


def test_what_was_taken_back_is_never_offered_and_nobody_waits_for_it() -> None:
    """K4: a partition that moved may come back at once, and must not wait for the try of an older life."""
    bench = Bench("a", "a", "b", "b")
    first, other = bench.receive()
    bench.settle(Action.RETRY, first, delay=3600.0)
    bench.broker.revoke("a")
    bench.now += 1
    assert numbers(bench.receive()) == [0]  # the new delivery, and its follower waits again
    bench.settle(Action.ACK, other)
    bench.broker.revoke("b")
    assert numbers(bench.receive()) == [3]


def test_a_failed_try_of_what_was_taken_back_is_stale() -> None:
    bench = Bench("a")
    (first,) = bench.receive()
    assert first.lease is not None
    first.lease.begin()
    bench.broker.revoke("a")
    (told,) = bench.settle(Action.REQUEUE, first)
    assert told.fate is Fate.STALE
    (again,) = bench.receive()
    assert again.counted == 0


def test_a_stop_gives_back_what_waits() -> None:
    """D-11: untried ones as they came; where the broker can, a failed one for its next try."""
    bench = Bench("a", "a", "b", "b", "-", promises=WINDOWED)
    first, failing, _free = bench.receive()
    bench.settle(Action.RETRY, failing, delay=60.0)
    bench.lanes.stop(1.0)
    assert sorted(bench.broker.left) == [1, 3]
    assert bench.broker.waiting == [2]
    assert bench.receive() == []
    assert [one.delivery for one in bench.settle(Action.ACK, first)] == [
        first
    ]  # not what the lanes gave back
    assert bench.receive() == []
    assert bench.lanes.is_empty() is False


def test_after_a_stop_a_failed_try_goes_back_to_its_place() -> None:
    bench = Bench("a", promises=WINDOWED)
    (first,) = bench.receive()
    bench.lanes.stop(1.0)
    (told,) = bench.settle(Action.RETRY, first, delay=60.0)
    assert (told.verdict.action, told.verdict.delay, told.fate) == (Action.REQUEUE, 0.0, Fate.DONE)
    assert bench.broker.waiting == [0]


@pytest.mark.parametrize("promises", [LOG, replace(WINDOWED, counts=False)])
def test_after_a_stop_it_is_left_where_it_is_if_its_try_would_not_count(promises: Promises) -> None:
    bench = Bench("a", promises=promises)
    (first,) = bench.receive()
    bench.lanes.stop(1.0)
    (told,) = bench.settle(Action.RETRY, first, delay=60.0)
    assert (told.verdict.action, told.fate, bench.broker.left) == (Action.RETRY, Fate.DONE, [0])
    assert bench.receive() == []


def test_after_a_loss_everything_is_forgotten() -> None:
    bench = Bench("a", "a", "b")
    first, other = bench.receive()
    bench.settle(Action.REQUEUE, other, delay=60.0)
    bench.lanes.close(Closing.LOST)
    bench.lanes.stop(0.0)  # also without a connection
    bench.lanes.open(lambda: False)
    assert numbers(bench.receive()) == [0, 2]
    assert [one.fate for one in bench.settle(Action.RETRY, first)] == [Fate.STALE]


def test_where_late_results_count_a_loss_changes_nothing() -> None:
    bench = Bench("a", "a", "b", promises=OUTLIVING)
    first, other = bench.receive()
    bench.settle(Action.REQUEUE, other, delay=60.0)
    bench.lanes.close(Closing.LOST)
    bench.lanes.open(lambda: False)
    assert bench.receive() == []
    bench.settle(Action.ACK, first)
    bench.now += 61
    assert numbers(bench.receive()) == [1, 2]


def test_what_was_about_to_be_offered_when_the_connection_broke_is_offered_after_it() -> None:
    bench = Bench("a", "-", "-", promises=OUTLIVING)
    batch = bench.receive()
    bench.settle(Action.REQUEUE, *batch)
    bench.broker.loses = True
    with pytest.raises(ConnectionLost):
        bench.receive()
    bench.lanes.close(Closing.LOST)
    bench.broker.loses = False
    bench.lanes.open(lambda: False)
    assert numbers(bench.receive(2)) == [0, 1]
    assert numbers(bench.receive(1)) == [2]
    assert bench.lanes.is_empty() is True


def test_what_became_final_just_before_a_loss_is_told_after_it() -> None:
    """Otherwise the engine would hold it for ever: it does not send it again."""
    bench = Bench("a", "b", promises=OUTLIVING)
    first, other = bench.receive()
    bench.broker.loses = True
    work = [
        Settlement(first, Synced(), Verdict(Action.REQUEUE, "")),
        Settlement(other, Synced(), Verdict(Action.ACK, "")),
    ]
    with pytest.raises(ConnectionLost):
        bench.lanes.settle(work)
    bench.lanes.close(Closing.LOST)
    bench.broker.loses = False
    bench.lanes.open(lambda: False)
    assert [one.fate for one in work] == [Fate.DONE, Fate.OPEN]
    assert list(bench.lanes.settle(work[1:])) == work


def test_where_a_message_is_gone_when_it_arrives_only_the_order_is_kept() -> None:
    """Nothing is tried again, nothing goes back, and a stop must not lose what has come."""
    bench = Bench("a", "a", promises=AT_MOST_ONCE)
    assert bench.lanes.promises == AT_MOST_ONCE
    (first,) = bench.receive()
    bench.lanes.stop(1.0)
    bench.lanes.close(Closing.LOST)
    bench.settle(Action.ACK, first)
    assert numbers(bench.receive()) == [1]


def test_it_promises_what_the_broker_cannot() -> None:
    promises = Lanes(LogBroker(promises=replace(WINDOWED, retries=False)), no_lane).promises
    assert (promises.retries, promises.delays, promises.counts) == (True, True, True)
    assert (promises.transport, promises.parks) == ("log", 0)
