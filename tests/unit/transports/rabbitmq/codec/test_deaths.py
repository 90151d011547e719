"""Which x-death headers a broker may be left with (RB11, RB12, Z16); the broker's part is in tests/faults."""

from __future__ import annotations

from datetime import UTC, datetime
from struct import pack
from typing import Any

import pytest

from chronicle.transports.rabbitmq.codec.deaths import MOST, can_be_dead_lettered
from chronicle.transports.rabbitmq.codec.encode import encode
from support.forgery import forged

WRITTEN_BY_THE_BROKER = {
    "count": 3,
    "reason": "rejected",
    "queue": "q",
    "time": datetime(2026, 3, 2, tzinfo=UTC),
    "exchange": "x",
    "routing-keys": ["a", "b"],
    "original-expiration": "60000",
}
HARMLESS = {
    "x-death: nothing", "x-death: a text", "x-death: a number", "x-death: a table", "x-death: an empty list",
    "x-death: a count that is nothing", "x-death: a huge count", "x-death: a negative count",
    "x-death: the same death twice", "x-death: a queue that is a number",
}  # fmt: skip


def envelope(entries: bytes) -> bytes:
    return pack(">HI", 1 << 13, len(entries)) + entries


@pytest.mark.parametrize("name", forged("q", "f"))
def test_a_forged_header_is_left_to_the_broker_only_where_it_is_harmless(name: str) -> None:
    sound = name in HARMLESS or "x-death" not in name.replace("x-first-death and x-last-death", "")
    assert can_be_dead_lettered(envelope(forged("q", "f")[name]), "q") == (sound and "loop" not in name)


@pytest.mark.parametrize(
    "deaths",
    [
        [WRITTEN_BY_THE_BROKER],
        [{**WRITTEN_BY_THE_BROKER, "queue": "q.fail", "reason": "expired"}, WRITTEN_BY_THE_BROKER],
        [{**WRITTEN_BY_THE_BROKER, "queue": f"q{number}"} for number in range(MOST)],
    ],
)
def test_what_the_broker_writes_itself_is_sound(deaths: list[dict[str, Any]]) -> None:
    assert can_be_dead_lettered(encode({"x-death": deaths}, {"message_id": "m"}), "q")


def test_more_than_a_broker_would_ever_write_is_not() -> None:
    deaths = [{**WRITTEN_BY_THE_BROKER, "queue": f"q{number}"} for number in range(MOST + 1)]
    assert not can_be_dead_lettered(encode({"x-death": deaths}, {}), "q")


def test_no_headers_at_all_and_bytes_that_make_no_sense() -> None:
    assert can_be_dead_lettered(encode({}, {}), "q")
    assert can_be_dead_lettered(encode({"k": 1}, {"expiration": "1"}), "q")
    assert not can_be_dead_lettered(envelope(b"\x01k?"), "q")
