"""The headers that tell of a failure, and what an x-death may make a broker do (D-2, RB12, Z16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.deadletters.death import LONGEST, failed, returns_by_expiry
from chronicle.core.delivery import Delivery, Envelope
from chronicle.transports.rabbitmq.codec.encode import encode

NOW = 1_772_446_272_000


def delivery(headers: dict[Any, Any], **facts: Any) -> Delivery:
    return Delivery(b"{}", **{"queue": "q", "transport": "test", "envelope": Envelope(headers), **facts})


def test_R_003_20_the_first_failure_and_the_next() -> None:
    first = failed(delivery({}), "why", "host.crm", NOW)
    assert first == {
        "x-chronicle-reason": "why",
        "x-chronicle-attempts": 1,
        "x-chronicle-queue": "q",
        "x-chronicle-consumer": "host.crm",
        "x-chronicle-first-failed-at": NOW,
        "x-chronicle-last-failed-at": NOW,
    }
    second = failed(delivery(first), "again", "host.crm", NOW + 5)
    assert second == first | {
        "x-chronicle-reason": "again",
        "x-chronicle-attempts": 2,
        "x-chronicle-last-failed-at": NOW + 5,
    }


@given(
    headers=st.dictionaries(
        st.sampled_from(["x-chronicle-attempts", "x-chronicle-first-failed-at", "x-delivery-count"]),
        st.integers() | st.text(max_size=3) | st.none(),
    ),
    reason=st.text() | st.just("half a character: \ud800"),
    queue=st.text(max_size=200),
)
def test_Z16_whatever_was_forged_the_headers_fit(headers: dict[str, Any], reason: str, queue: str) -> None:
    """Rule 1 of the room: capped, so a broker takes them; the count goes up or is at its end."""
    told = failed(delivery(headers, queue=queue), reason, "host.crm", NOW)
    assert 1 <= told["x-chronicle-attempts"] < 2**31
    assert 0 < told["x-chronicle-first-failed-at"] <= told["x-chronicle-last-failed-at"] == NOW
    assert len(told["x-chronicle-reason"].encode()) <= LONGEST
    assert len(encode(told, {})) < 4 * LONGEST


def entry(queue: str, reason: str, count: object = 1) -> dict[str, Any]:
    return {"queue": queue, "reason": reason, "count": count}


@pytest.mark.parametrize(
    ("deaths", "returns"),
    [
        (None, True),
        ([], True),
        ([entry("q.retry.5s", "expired", 3)], True),
        ([entry("org.1.fail", "expired"), entry("q", "rejected")], True),
        ([entry("q", "rejected")], True),
        ([entry("q", "expired")], False),
        ([entry("other", "expired"), entry("q", "maxlen")], False),
        ([entry("q", "delivery_limit")], False),
        ([entry("q", "expired"), entry("q", "rejected")], False),
        ("text", False),
        ([1], False),
        ({}, False),
        ([entry("q", "rejected", "9")], False),
        ([entry("q", "rejected"), {}], False),
    ],
)
def test_RB12_an_x_death_that_looks_like_a_circle_is_known(deaths: object, returns: bool) -> None:
    """The same rule as the broker's: back to a queue, and no rejection on the way."""
    headers = {} if deaths is None else {"x-death": deaths}
    assert returns_by_expiry(headers, "q") is returns
