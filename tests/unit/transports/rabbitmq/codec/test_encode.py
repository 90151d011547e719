"""Envelopes to send: what is encoded reads back as it was, what is passed on stays as it came (Z6, RB7)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import InvalidMessage
from chronicle.transports.rabbitmq.codec.decode import (
    DEEPEST,
    Unreadable,
    fields_of,
    open_envelope,
    properties_of,
)
from chronicle.transports.rabbitmq.codec.encode import encode, encode_table, relabelled
from support.amqp import EVERY_PROPERTY, spec

SECRET = "jane@example.org"

name = st.text(max_size=40) | st.binary(max_size=40).filter(lambda raw: not _is_utf8(raw))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.decimals(-1000, 1000, places=3).map(lambda number: number + 0)  # zero has no sign there
    | st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0, fold=0, tzinfo=UTC)
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(name, inner, max_size=4),
    max_leaves=12,
)
headers_ = st.dictionaries(name, values, max_size=6)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(headers=headers_, chosen=st.sets(st.sampled_from(list(EVERY_PROPERTY))))
def test_what_is_encoded_reads_back_as_it_was(headers: dict[Any, Any], chosen: set[str]) -> None:
    properties = {name: EVERY_PROPERTY[name] for name in chosen}
    envelope = open_envelope(encode(headers, properties))
    assert envelope.fault == ""
    assert envelope.headers == headers
    assert envelope.properties == properties
    assert repr(envelope.headers) == repr(headers)  # 1 and True, 0.0 and -0.0 are equal, but not the same


@pytest.mark.parametrize("name", EVERY_PROPERTY)
def test_a_property_is_encoded_as_pika_encodes_it(name: str) -> None:
    properties = {name: EVERY_PROPERTY[name]}
    assert encode({}, properties) == b"".join(spec.BasicProperties(**properties).encode())


def test_a_float_is_carried_where_pika_gives_up() -> None:
    assert open_envelope(encode({"f": 0.7, "inf": float("inf")}, {})).headers == {
        "f": 0.7,
        "inf": float("inf"),
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"k": object()},
        {"k": 2**64},
        {"k": -(2**63) - 1},
        {"k": Decimal("1e5")},
        {"k": datetime(1969, 12, 31, tzinfo=UTC)},
        {"k": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
        {"k": Decimal("NaN")},
        {"k": Decimal("9" * 5000)},
        {"k": Decimal(2**31)},
        {"k": "\ud800" + SECRET},
        {SECRET * 20: 1},
        {1: 1},
        {"k": {SECRET}},
    ],
)
def test_what_amqp_cannot_carry_is_named_by_its_kind_only(headers: dict[Any, Any]) -> None:
    """D-21: never by its content."""
    with pytest.raises(InvalidMessage) as refused:
        encode(headers, {})
    assert "jane" not in str(refused.value)


@pytest.mark.parametrize(
    "properties", [{"priority": 256}, {"priority": True}, {"timestamp": -1}, {"type": "x" * 256}, {"type": 7}]
)
def test_a_property_that_does_not_fit_is_refused(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        encode({}, properties)


def test_nesting_is_written_as_deep_as_it_is_read() -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"k": nested(depth - 1)} if depth > 1 else {}

    assert open_envelope(encode({"k": nested(DEEPEST - 1)}, {})).fault == ""
    with pytest.raises(InvalidMessage, match="nested"):
        encode({"k": nested(DEEPEST)}, {})
    with pytest.raises(InvalidMessage, match="nested"):
        encode({"k": [nested(DEEPEST)]}, {})


@given(headers=headers_)
def test_a_table_falls_into_its_fields_and_back(headers: dict[Any, Any]) -> None:
    table = encode_table(headers)
    fields = fields_of(table)
    assert b"".join(field for _, field in fields) == table
    assert [name for name, _ in fields] == [n if isinstance(n, bytes) else n.encode() for n in headers]


@given(raw=st.binary(max_size=200))
def test_taking_apart_reads_or_says_that_it_cannot(raw: bytes) -> None:
    for take_apart in (properties_of, fields_of):
        try:
            take_apart(raw)
        except Unreadable:
            continue


OURS = {"x-chronicle-reason": "why", "x-chronicle-attempts": 2}


@given(headers=headers_, chosen=st.sets(st.sampled_from(list(EVERY_PROPERTY))))
def test_Z6_passing_on_changes_only_what_it_must(headers: dict[Any, Any], chosen: set[str]) -> None:
    """Our headers replace older ones; the message is persistent and has no time to live."""
    before = encode(headers | {"x-chronicle-attempts": 1}, {name: EVERY_PROPERTY[name] for name in chosen})
    after = open_envelope(relabelled(before, OURS, frozenset(), "guest"))
    assert after.fault == ""
    assert after.headers == {n: v for n, v in headers.items() if n not in OURS} | OURS
    kept = {name: EVERY_PROPERTY[name] for name in chosen - {"expiration"}}
    assert after.properties == kept | {"delivery_mode": 2}


def test_Z6_headers_that_stay_are_the_bytes_that_came() -> None:
    """A float of four bytes, a timestamp in milliseconds, a name that is not UTF-8: none is written anew."""
    odd = [
        b"\x01ff" + struct.pack(">f", 0.1),
        b"\x01tT" + struct.pack(">Q", 1_700_000_000_000),
        b"\x02\xff\xfeb\x80",
        b"\x01sS\x00\x00\x00\x01\xff",
    ]
    table = b"".join(odd)
    raw = struct.pack(">HI", 1 << 13, len(table)) + table
    for _ in range(3):
        raw = relabelled(raw, OURS, frozenset(), "guest")
    fields = fields_of(properties_of(raw)["headers"][4:])
    assert [field for _, field in fields][:4] == odd
    assert [name for name, _ in fields][4:] == [name.encode() for name in OURS]


def test_another_user_and_unwanted_headers_stay_behind() -> None:
    raw = encode({"CC": ["elsewhere"], "x-delivery-count": 3, "kept": 1}, {"user_id": "somebody"})
    envelope = open_envelope(relabelled(raw, OURS, {b"CC", b"x-delivery-count"}, "guest"))
    assert envelope.headers == {"kept": 1} | OURS
    assert envelope.properties == {"delivery_mode": 2}


def test_RB13_a_table_that_nobody_can_read_is_passed_on_and_its_tries_are_counted() -> None:
    deep = b""
    for _ in range(2000):
        deep = b"\x01kF" + struct.pack(">I", len(deep)) + deep
    raw = struct.pack(">HI", 1 << 13, len(deep)) + deep
    for attempts in (1, 2):
        raw = relabelled(raw, OURS | {"x-chronicle-attempts": attempts}, frozenset(), "guest")
        envelope = open_envelope(raw)
        assert "nested deeper" in envelope.fault
        assert envelope.headers == OURS | {"x-chronicle-attempts": attempts}
        assert deep in raw


def test_an_envelope_that_is_none_is_not_passed_on() -> None:
    with pytest.raises(Unreadable):
        relabelled(b"\xff", OURS, frozenset(), "guest")
    with pytest.raises(Unreadable):
        relabelled(encode({"a": 1}, {}) + b"\0", OURS, frozenset(), "guest")
