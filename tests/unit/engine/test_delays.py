"""Where a verdict waits for its time. The clock is passed in: nothing here takes time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Failed, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.engine.delays import Delays
from chronicle.telemetry.events import Silent
from chronicle.transports.seam import Promises
from support.samples import delivery

PLAIN = Promises("plain")  # neither keeps delays nor counts tries, like RabbitMQ
KEEPING = Promises("keeping", delays=True, counts=True)


def verdict(
    action: Action = Action.REQUEUE, delay: float | None = 0.0, given: Delivery | None = None
) -> Settlement:
    return Settlement(given or delivery(b"x"), Failed(), Verdict(action, "why", delay))


@pytest.mark.parametrize("action", [Action.ACK, Action.DEAD_LETTER, Action.DROP])
def test_what_needs_no_time_passes_straight_through(action: Action) -> None:
    shelf = Delays(PLAIN, Silent())
    passing = verdict(action, 60.0)
    shelf.put(passing, now=0)
    assert shelf.due(now=0) == [passing]
    assert shelf.due(now=0) == []


def test_R_004_33_a_requeue_without_a_delay_does_too() -> None:
    shelf = Delays(PLAIN, Silent())
    shelf.put(verdict(), now=0)
    assert len(shelf.due(now=0)) == 1
    assert shelf.wait(now=0) == math.inf


def test_a_delay_is_kept_to_the_moment() -> None:
    shelf = Delays(PLAIN, Silent())
    later = verdict(delay=5.0)
    shelf.put(later, now=100)
    assert shelf.due(now=104.9) == []
    assert shelf.wait(now=103) == 2.0
    assert shelf.wait(now=200) == 0.0
    assert shelf.due(now=105) == [later]
    assert shelf.wait(now=105) == math.inf


@given(st.lists(st.integers(1, 5), max_size=20))
def test_they_come_in_the_order_of_their_time_and_then_of_their_arrival(delays: list[int]) -> None:
    shelf = Delays(PLAIN, Silent())
    waiting = [verdict(delay=float(delay)) for delay in delays]
    for settlement in waiting:
        shelf.put(settlement, now=0)
    came = [settlement for now in range(6) for settlement in shelf.due(now)]
    assert came == sorted(waiting, key=lambda settlement: settlement.verdict.delay or 0)


def test_D_1_a_requeue_that_names_no_delay_grows_from_a_second_to_a_minute() -> None:
    """Never a hot loop; counted here, because this broker does not."""
    shelf = Delays(PLAIN, Silent())
    now, waits = 0.0, []
    for _ in range(8):
        shelf.put(verdict(delay=None), now)
        waits.append(shelf.wait(now))
        now += waits[-1]
        assert len(shelf.due(now)) == 1
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_broker_that_keeps_delays_gets_the_delay_at_once() -> None:
    shelf = Delays(KEEPING, Silent())
    shelf.put(verdict(delay=5.0), now=0)
    shelf.put(verdict(delay=None, given=delivery(b"x", counted=3)), now=0)
    assert [settlement.verdict.delay for settlement in shelf.due(now=0)] == [5.0, 8.0]


def test_R_000_25_at_a_stop_nothing_waits_any_longer() -> None:
    shelf = Delays(PLAIN, Silent())
    first, second = verdict(delay=60.0), verdict(delay=30.0)
    shelf.put(first, now=0)
    shelf.hurry()
    shelf.put(second, now=0)
    assert shelf.due(now=0) == [first, second]


def test_RB2_what_waited_on_a_lost_connection_is_the_brokers_again() -> None:
    shelf = Delays(PLAIN, Silent())
    shelf.put(verdict(), now=0)
    shelf.put(verdict(delay=5.0), now=0)
    shelf.empty()
    assert shelf.due(now=1_000) == []
    assert shelf.wait(now=0) == math.inf


def test_RB15_nothing_is_held_longer_than_the_broker_allows() -> None:
    """It is requeued then, and the syncer may ask again; the reason says so."""
    shelf = Delays(Promises("rabbitmq", holds=600.0), Silent())
    shelf.put(verdict(delay=3600.0), now=0)
    assert shelf.wait(now=0) == 600.0
    (back,) = shelf.due(now=600)
    assert back.verdict.delay == 600.0
    assert "held for at most 600s at a time, not for 3600s" in back.verdict.reason


def test_a_broker_that_keeps_delays_itself_keeps_them_as_long_as_asked() -> None:
    shelf = Delays(Promises("local", delays=True, counts=True), Silent())
    shelf.put(verdict(delay=3600.0), now=0)
    assert [back.verdict.delay for back in shelf.due(now=0)] == [3600.0]


def test_after_a_loss_only_what_is_still_open_is_sent_once_more() -> None:
    """Seam: what became final just before the loss is told by the transport, not settled twice."""
    shelf = Delays(Promises("late", late_results=True), Silent())
    final, still_open = verdict(), verdict()
    shelf.put(final, now=0)
    shelf.put(still_open, now=0)
    shelf.due(now=0)
    final.fate = Fate.DONE
    shelf.send_again()
    assert shelf.due(now=0) == [still_open]


def test_where_a_message_is_gone_when_it_arrives_nothing_is_waited_for() -> None:
    """S10: there is no next try, and waiting for it would only take a place."""
    shelf = Delays(Promises("channel", settles=False), Silent())
    shelf.put(verdict(delay=3600.0), now=0)
    assert len(shelf.due(now=0)) == 1
