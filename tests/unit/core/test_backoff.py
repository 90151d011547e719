"""How long to wait before the next try (D-6, R-000-40)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.backoff import Backoff
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.seam import Connector, Promises

seconds = st.floats(0.001, 3600)
backoffs = st.builds(
    lambda initial, more, multiplier: Backoff(initial, initial + more, multiplier),
    seconds,
    seconds,
    st.floats(1, 100),
)


def test_D_6_the_usual_sequence() -> None:
    """R-000-40: 250 ms, doubled up to 10 s."""
    usual = Promises("any").backoff
    assert [usual.ceiling(n) for n in range(1, 9)] == [0.25, 0.5, 1, 2, 4, 8, 10, 10]


def test_D_6_RabbitMQ_has_it() -> None:
    transport = RabbitTransport(Connector("amqp://guest@127.0.0.1/", "q"))
    assert transport.promises.backoff == Backoff(0.25, 10.0, 2.0)


@pytest.mark.parametrize("attempt", [64, 1_025, 10_000, 10**9])
@pytest.mark.parametrize("multiplier", [1.1, 2.0, 999_999.0])
def test_no_overflow_however_long_the_broker_is_away(attempt: int, multiplier: float) -> None:
    """And however little it grows, it gets to the longest wait."""
    assert Backoff(0.25, 10.0, multiplier).ceiling(attempt) == 10.0


@pytest.mark.parametrize("attempt", [0, -1])
def test_a_try_before_the_first_counts_as_the_first(attempt: int) -> None:
    assert Backoff(0.25, 10.0).ceiling(attempt) == 0.25


@given(backoffs, st.integers(1, 10_000), st.floats(0, 1))
def test_the_wait_is_between_the_first_and_the_longest(backoff: Backoff, attempt: int, luck: float) -> None:
    delay = backoff.delay(attempt, luck)
    assert backoff.initial <= delay or math.isclose(backoff.initial, delay)
    assert delay <= backoff.ceiling(attempt) or math.isclose(delay, backoff.ceiling(attempt))
    assert backoff.ceiling(attempt) <= backoff.maximum


@given(backoffs, st.integers(1, 10_000))
def test_it_never_shrinks(backoff: Backoff, attempt: int) -> None:
    assert backoff.ceiling(attempt) <= backoff.ceiling(attempt + 1)


def test_luck_spreads_it() -> None:
    """Full jitter above the first wait: a thousand consumers do not come back at once."""
    backoff = Backoff(1.0, 9.0)
    assert [backoff.delay(10, luck) for luck in (0.0, 0.5, 1.0)] == [1.0, 5.0, 9.0]
    assert backoff.delay(1, 0.9) == 1.0
