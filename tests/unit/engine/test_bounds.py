"""When a run ends by itself. The clock is passed in: nothing here takes time."""

from __future__ import annotations

from chronicle.core.delivery import Delivery
from chronicle.engine.bounds import BoundsWatch
from chronicle.engine.job import Bounds
from chronicle.telemetry.counters import Counters
from support.samples import delivery

SOME: list[Delivery] = [delivery(b"x")]


def reached(
    watch: BoundsWatch, now: float = 0, held: int = 0, empty: bool | None = True, received: int = 0
) -> str:
    counters = Counters()
    counters.received = received
    return watch.reached(now, counters, held, lambda: empty)


def quiet(bounds: Bounds) -> BoundsWatch:
    watch = BoundsWatch(bounds, now=0)
    watch.turned([], now=0)
    return watch


def test_without_bounds_it_never_ends() -> None:
    watch = quiet(Bounds())
    assert reached(watch, now=10**9, received=10**9) == ""


def test_max_messages_counts_what_was_received() -> None:
    watch = BoundsWatch(Bounds(max_messages=3), now=0)
    assert reached(watch, received=2) == ""
    assert reached(watch, received=3, held=3) == "3 messages received"


def test_max_time_counts_from_the_start_whatever_goes_on() -> None:
    watch = BoundsWatch(Bounds(max_time=60), now=100)
    watch.turned(SOME, now=159)
    assert reached(watch, now=159, held=1) == ""
    assert reached(watch, now=160, held=1) == "time is up"


def test_idle_timeout_counts_from_the_last_delivery_or_the_connection() -> None:
    watch = BoundsWatch(Bounds(idle_timeout=30), now=0)
    watch.turned(SOME, now=50)
    watch.turned([], now=60)
    assert reached(watch, now=79) == ""
    assert reached(watch, now=80, held=1) == "", "a message in work is not idleness"
    assert reached(watch, now=80) == "idle"
    watch.connected(now=80)
    watch.turned([], now=80)
    assert reached(watch, now=109) == ""


class TestUntilEmpty:
    def test_the_broker_says_empty_and_the_turn_after_brings_nothing(self) -> None:
        watch = quiet(Bounds(until_empty=True))
        assert reached(watch) == ""
        assert watch.hurries(held=0), "the second look comes at once"
        watch.turned([], now=0)
        assert reached(watch) == "the queue is empty"

    def test_what_was_pushed_before_the_answer_counts(self) -> None:
        watch = quiet(Bounds(until_empty=True))
        reached(watch)
        watch.turned(SOME, now=0)
        watch.turned([], now=0)
        assert reached(watch) == "", "it is asked anew"

    def test_something_waits_or_nobody_knows(self) -> None:
        for empty in (False, None):
            watch = quiet(Bounds(until_empty=True))
            reached(watch, empty=empty)
            watch.turned([], now=0)
            assert reached(watch, empty=empty) == ""
            assert not watch.hurries(held=0)

    def test_something_is_held(self) -> None:
        watch = quiet(Bounds(until_empty=True))
        reached(watch, held=1)
        watch.turned([], now=0)
        assert reached(watch, held=1) == ""

    def test_an_earlier_connections_word_does_not_count(self) -> None:
        watch = quiet(Bounds(until_empty=True))
        reached(watch)
        watch.connected(now=0)
        watch.turned([], now=0)
        assert reached(watch, empty=False) == ""

    def test_what_was_requeued_is_waited_for_a_while(self) -> None:
        """A quorum queue calls itself empty until it has taken a message back."""
        watch = quiet(Bounds(until_empty=True))
        counters = Counters()
        counters.requeued = 1
        for _ in range(3):
            assert watch.reached(100, counters, 0, lambda: True) == ""
            watch.turned([], now=100)
        watch.turned([delivery(b"x", redelivered=True)], now=101)
        watch.turned([], now=101)
        watch.reached(101, counters, 0, lambda: True)
        assert watch.reached(101, counters, 0, lambda: True) == "the queue is empty"

    def test_but_not_for_ever_somebody_else_may_have_got_it(self) -> None:
        watch = quiet(Bounds(until_empty=True))
        counters = Counters()
        counters.requeued = 1
        assert watch.reached(100, counters, 0, lambda: True) == ""
        watch.reached(200, counters, 0, lambda: True)
        assert watch.reached(200, counters, 0, lambda: True) == "the queue is empty"


def test_a_turn_without_room_is_not_quiet() -> None:
    """It could not bring anything: a drain that ended there would leave behind what had arrived."""
    watch = BoundsWatch(Bounds(), 0)
    watch.turned([], now=1, had_room=False)
    assert not watch.quiet
    watch.turned([], now=2)
    assert watch.quiet
