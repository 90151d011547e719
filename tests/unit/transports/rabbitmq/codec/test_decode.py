"""Basic properties and field tables, against pika's own encoder and decoder (RB13, performance.md)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pika import data as pika_data

from chronicle.transports.rabbitmq.codec.decode import DEEPEST, open_envelope
from support.amqp import EVERY_PROPERTY, spec

SECRET = b"jane@example.org"


def encoded(**properties: Any) -> bytes:
    return b"".join(spec.BasicProperties(**properties).encode())


def with_table(table: bytes) -> bytes:
    """A content header that has nothing but these bytes as its header table."""
    return struct.pack(">HI", 1 << 13, len(table)) + table


def field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def headers_of(value: bytes) -> Any:
    envelope = open_envelope(with_table(field(b"k", value)))
    assert envelope.fault == ""
    return envelope.headers["k"]


def nested(depth: int) -> bytes:
    table = b""
    for _ in range(depth - 1):
        table = field(b"k", b"F" + struct.pack(">I", len(table)) + table)
    return table


@pytest.mark.parametrize("name", EVERY_PROPERTY)
def test_each_property_alone_reads_as_pika_reads_it(name: str) -> None:
    envelope = open_envelope(encoded(**{name: EVERY_PROPERTY[name]}))
    assert envelope.properties == {name: EVERY_PROPERTY[name]}
    assert (envelope.headers, envelope.fault) == ({}, "")


def test_all_properties_together_and_headers_only_as_headers() -> None:
    envelope = open_envelope(encoded(**EVERY_PROPERTY, headers={"x-a": 1}))
    assert envelope.properties == EVERY_PROPERTY
    assert envelope.headers == {"x-a": 1}
    assert envelope.fault == ""


def test_no_property_at_all() -> None:
    envelope = open_envelope(encoded())
    assert (envelope.headers, envelope.properties, envelope.fault) == ({}, {}, "")


@pytest.mark.parametrize(
    "value",
    [
        b"t\x01", b"t\x00", b"t\x07", b"b\x80", b"B\xff", b"s\x80\x01", b"U\x80\x01", b"u\xff\xfe",
        b"I\x80\x00\x00\x01", b"i\xff\xff\xff\xfe", b"l" + b"\xff" * 8, b"L\x80" + b"\x00" * 7,
        b"D\x02\x00\x00\x00\x7b", b"D\x00\xff\xff\xff\xff", b"D\xff\x7f\xff\xff\xff", b"D\x03" + bytes(4),
        b"S\x00\x00\x00\x00", b"S\x00\x00\x00\x02\xc3\xa9", b"S\x00\x00\x00\x02\xff\xfe",
        b"x\x00\x00\x00\x03abc", b"V", b"T" + struct.pack(">Q", 1_700_000_000),
        b"A\x00\x00\x00\x00", b"A\x00\x00\x00\x05t\x01Vb\xff", b"F\x00\x00\x00\x00",
        b"F\x00\x00\x00\x04\x01aB\x01", b"F\x00\x00\x00\x04\x02\xff\xfeV",
    ],
)  # fmt: skip
def test_each_table_type_reads_as_pika_reads_it(value: bytes) -> None:
    theirs, _ = pika_data.decode_value(value, 0)
    ours = headers_of(value)
    assert ours == theirs
    assert isinstance(theirs, type(ours))
    if isinstance(ours, Decimal):
        assert str(ours) == str(theirs)


def test_a_float_keeps_its_decimals_where_pika_cuts_them_off() -> None:
    assert headers_of(b"d" + struct.pack(">d", 0.7)) == 0.7
    assert headers_of(b"f" + struct.pack(">f", -2.5)) == -2.5
    assert headers_of(b"d" + struct.pack(">d", float("inf"))) == float("inf")


def test_RB13_a_timestamp_in_milliseconds_stays_a_number() -> None:
    assert headers_of(b"T" + struct.pack(">Q", 1_700_000_000_000)) == 1_700_000_000_000
    assert headers_of(b"T" + b"\xff" * 8) == 2**64 - 1
    assert headers_of(b"T" + struct.pack(">Q", 0)) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_property_timestamp_is_the_number_that_came() -> None:
    assert open_envelope(encoded(timestamp=1_700_000_000_000)).properties["timestamp"] == 1_700_000_000_000


def test_RB13_a_table_2000_deep_is_a_fault_of_its_message() -> None:
    envelope = open_envelope(with_table(nested(2000)))
    assert envelope.headers == {}
    assert envelope.fault == f"the header table cannot be read: nested deeper than {DEEPEST}"


def test_nesting_is_read_up_to_the_cap() -> None:
    assert open_envelope(with_table(nested(DEEPEST))).fault == ""
    assert open_envelope(with_table(nested(DEEPEST + 1))).fault != ""


def test_RB13_arrays_2000_deep_are_a_fault_too() -> None:
    array = b""
    for _ in range(2000):
        array = b"A" + struct.pack(">I", len(array)) + array
    assert "nested deeper" in open_envelope(with_table(field(b"k", array))).fault


def test_RB13_names_and_values_that_are_not_utf_8_stay_bytes() -> None:
    table = field(b"\xff\xfe", b"S\x00\x00\x00\x01\xff") + field(b"x-ok", b"V")
    envelope = open_envelope(with_table(table))
    assert envelope.headers == {b"\xff\xfe": b"\xff", "x-ok": None}
    assert open_envelope(b"\x80\x00\x01\xff").properties == {"content_type": b"\xff"}


@pytest.mark.parametrize(
    "table",
    [
        field(b"k", b"?") + SECRET,
        field(b"k", b"S\x00\x00\x00\xff") + SECRET,
        field(b"k", b"l\x00"),
        field(b"k", b""),
        field(b"k", b"D\x00\x00"),
        field(b"k", b"T\x00\x00"),
        field(b"k", b"A\x00\x00\x00\x01l"),
        field(b"k", b"F\x00\x00\x00\x02\x05k"),
        field(b"k", b"S\x00\x00"),
        field(b"a", b"V") + b"\x09" + SECRET[:2],
    ],
)
def test_RB13_an_unreadable_table_keeps_the_other_properties_and_tells_no_content(table: bytes) -> None:
    raw = struct.pack(">H", 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7) + b"\x04json"
    raw += struct.pack(">I", len(table)) + table + b"\x02" + b"\x03m-1"
    envelope = open_envelope(raw)
    assert envelope.headers == {}
    assert envelope.properties == {"content_type": "json", "delivery_mode": 2, "message_id": "m-1"}
    assert envelope.fault.startswith("the header table cannot be read: ")
    assert not any(part in envelope.fault for part in ("jane", "example"))


def test_a_table_longer_than_the_frame_keeps_what_came_before_it() -> None:
    raw = struct.pack(">H", 1 << 15 | 1 << 13 | 1 << 12) + b"\x04json" + b"\xff\xff\xff\xff" + SECRET
    envelope = open_envelope(raw)
    assert envelope.properties == {"content_type": "json"}
    assert envelope.fault.startswith("the properties cannot be read: ")


def test_bytes_behind_the_last_property_are_a_fault() -> None:
    envelope = open_envelope(encoded(headers={"a": 1}, app_id="x") + b"\x00")
    assert envelope.fault == "the properties cannot be read: 1 extra bytes at the end"
    assert envelope.headers == {}
    assert envelope.properties == {"app_id": "x"}


def test_further_flag_words_are_skipped_as_pika_skips_them() -> None:
    raw = struct.pack(">HHH", 1 << 12 | 1, 1, 0) + b"\x02"
    theirs = spec.BasicProperties().decode(raw)
    assert open_envelope(raw).properties == {"delivery_mode": theirs.delivery_mode}


def test_every_cut_of_a_full_header_reads_or_is_a_fault() -> None:
    raw = encoded(**EVERY_PROPERTY, headers={"x-death": [{"count": 1, "queue": "q"}], "d": Decimal("1.5")})
    for cut in range(len(raw)):
        envelope = open_envelope(raw[:cut])
        assert envelope.fault
        assert envelope.headers == {}
        assert envelope.properties.items() <= EVERY_PROPERTY.items()


short = st.text(max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.decimals(-1000, 1000, places=3)
    | st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)).map(lambda t: t.replace(tzinfo=UTC)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short, inner, max_size=4),
    max_leaves=12,
)


@given(
    headers=st.dictionaries(short, values, max_size=6), chosen=st.sets(st.sampled_from(list(EVERY_PROPERTY)))
)
def test_what_pika_encodes_reads_as_pika_decodes_it(headers: dict[str, Any], chosen: set[str]) -> None:
    raw = encoded(**{name: EVERY_PROPERTY[name] for name in chosen}, headers=headers)
    theirs = spec.BasicProperties().decode(raw)
    envelope = open_envelope(raw)
    assert envelope.fault == ""
    assert envelope.headers == theirs.headers
    assert envelope.properties == {name: getattr(theirs, name) for name in chosen}


@given(raw=st.binary(max_size=200))
@example(raw=b"")
@example(raw=b"\xff")
@example(raw=b"\x00\x01" * 50)
def test_RB13_no_bytes_whatsoever_raise(raw: bytes) -> None:
    envelope = open_envelope(raw)
    assert envelope.headers == {} or not envelope.fault


@given(data=st.data(), headers=st.dictionaries(short, values, max_size=6))
def test_RB13_no_damage_to_a_real_header_raises(data: st.DataObject, headers: dict[str, Any]) -> None:
    raw = bytearray(encoded(**EVERY_PROPERTY, headers=headers))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    envelope = open_envelope(bytes(raw))
    assert not envelope.fault or all(_is_ours(name) for name in envelope.headers)


def _is_ours(name: str | bytes) -> bool:
    return (name if isinstance(name, bytes) else name.encode()).startswith(b"x-chronicle-")
