"""A record as a delivery, and back: bytes stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.delivery import Lease
from chronicle.core.outcome import Action, Failed, Verdict
from chronicle.core.record import from_record, to_record
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import InvalidMessage
from chronicle.telemetry.events import verdict_facts
from chronicle.transports.kafka.records import (
    NUMBERS,
    Headers,
    decoded,
    delivery_of,
    encoded,
    open_envelope,
    record_of,
)
from chronicle.transports.seam import Outgoing

NOW = 1_772_446_272_000


def message(
    value: bytes | None = b"{}",
    key: bytes | None = b"ada@example.org",
    headers: Headers | None = None,
    kind: int = TIMESTAMP_CREATE_TIME,
) -> Message:
    made: Message = Message("orders", 2, 41, key, value, list(headers or ()), None, (kind, NOW))
    return made


# --- a record as a delivery -------------------------------------------------------------------------


def test_R_002_18_everything_about_a_record_is_in_the_delivery() -> None:
    lease = Lease()
    found = delivery_of(message(headers=[("kind", b"order")]), "orders", lease)
    assert (found.body, found.queue, found.transport) == (b"{}", "orders", "kafka")
    assert found.origin == {"topic": "orders", "partition": 2, "offset": 41, "key": b"ada@example.org"}
    assert (found.timestamp, found.redelivered, found.counted, found.attempts) == (NOW, False, 0, 1)
    assert (found.headers, found.properties) == ({"kind": "order"}, {"key": "ada@example.org"})
    assert found.handle is found.lease is lease


def test_R_002_26_a_record_without_a_time_has_none() -> None:
    assert delivery_of(message(kind=TIMESTAMP_NOT_AVAILABLE), "orders").timestamp is None


def test_K6_a_tombstone_is_an_empty_body_and_goes_back_as_one() -> None:
    found = delivery_of(message(None), "orders")
    assert (found.body, found.properties) == (b"", {"key": "ada@example.org", "tombstone": True})
    again = record_of(Outgoing(found.body, found.headers, found.properties))
    assert again == (b"ada@example.org", None, [])
    assert delivery_of(message(b""), "orders").properties == {"key": "ada@example.org"}
    assert record_of(Outgoing(b"", {}, {}))[1] == b""


@pytest.mark.parametrize("forged", ["true", 1, False, None])
def test_only_an_empty_body_is_a_tombstone(forged: Any) -> None:
    assert record_of(Outgoing(b"", {}, {"tombstone": forged}))[1] == b""
    assert record_of(Outgoing(b"x", {}, {"tombstone": True}))[1] == b"x"


@pytest.mark.parametrize(
    ("key", "shown"), [(None, {}), (b"", {"key": ""}), (b"\xff\0", {"key": b"\xff\0"}), (b"k", {"key": "k"})]
)
def test_R_002_28_a_key_is_text_where_it_can_be(key: bytes | None, shown: dict[str, Any]) -> None:
    found = delivery_of(message(key=key), "orders")
    assert found.properties == shown
    assert record_of(Outgoing(found.body, {}, found.properties))[0] == key


@pytest.mark.parametrize("key", [1, ["k"], {"k": "v"}, "\ud800"])
def test_a_key_that_cannot_be_one(key: Any) -> None:
    with pytest.raises(InvalidMessage, match="key of a record must be text or bytes"):
        record_of(Outgoing(b"", {}, {"key": key}))


def test_a_key_is_in_no_log_line() -> None:
    """D-21, Z5: it is often an e-mail address."""
    found = delivery_of(message(headers=[("who", b"ada@example.org")]), "orders")
    settlement = Settlement(found, Failed(), Verdict(Action.DEAD_LETTER, "why"), fate=Fate.DONE)
    _, _, facts = verdict_facts(settlement)
    assert facts["offset"] == 41
    assert "ada" not in f"{facts} {found!r}"


def test_a_record_of_a_capture_is_the_same_delivery() -> None:
    """R-002-27, R-002-28: bytes as base64, text where it is text."""
    headers: Headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
    found = delivery_of(message(b"\xfe", b"\xfd", headers), "orders")
    record = to_record(found)
    assert record["value"] == {"base64": "/g=="}
    assert record["key"] == {"base64": "/Q=="}
    again = from_record(record)
    assert (again.body, again.origin, again.headers) == (found.body, found.origin, found.headers)
    assert (again.properties, again.timestamp) == (found.properties, NOW)


class Poisoned(Message):
    """What the client makes of a header whose name is not UTF-8: an exception when somebody looks."""

    def headers(self) -> Any:
        raise SystemError("returned a result with an exception set")


def test_headers_that_cannot_be_read_are_their_records_problem() -> None:
    """X1: as everywhere, the fault is told and the headers read as empty."""
    envelope = open_envelope(Poisoned("orders", 0, 1, b"k", b"v", [], None, (1, NOW)))
    assert (envelope.headers, envelope.properties) == ({}, {"key": "k"})
    assert envelope.fault == "the record's headers cannot be read"


# --- headers ----------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
PAIRS = st.lists(
    st.tuples(st.one_of(NAMES, st.sampled_from(sorted(NUMBERS))), st.one_of(st.none(), st.binary(max_size=8)))
)


@given(PAIRS)
def test_headers_go_back_as_the_same_bytes(pairs: Headers) -> None:
    """Z6: of one name in their order; names in the order in which they first occur."""
    names = list(dict.fromkeys(name for name, _ in pairs))
    assert encoded(decoded(pairs)) == [pair for name in names for pair in pairs if pair[0] == name]


def test_what_headers_look_like() -> None:
    """R-002-27."""
    pairs: Headers = [("a", b"1"), ("b", b"x"), ("a", b"\xff"), ("c", None), ("a", None), ("d", "ü".encode())]
    assert decoded(pairs) == {"a": ["1", b"\xff", None], "b": "x", "c": None, "d": "ü"}


def test_chronicles_own_numbers_are_numbers() -> None:
    found = delivery_of(message(headers=[("x-chronicle-attempts", b"3")]), "orders")
    assert found.headers == {"x-chronicle-attempts": 3}
    assert found.attempts == 4


@pytest.mark.parametrize("forged", [b"9" * 19, b"-1", b"1.5", b"\xff", b"", b"007", None, "٣".encode()])
def test_a_forged_number_is_no_number(forged: bytes | None) -> None:
    """Z16, X1: reading never fails, and nonsense counts as nothing."""
    assert delivery_of(message(headers=[("x-chronicle-attempts", forged)]), "orders").attempts == 1
    twice: Headers = [("x-chronicle-attempts", b"3"), ("x-chronicle-attempts", b"4")]
    assert delivery_of(message(headers=twice), "orders").attempts == 1


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("ü", ["ü".encode()]),
        (b"\xff", [b"\xff"]),
        (None, [None]),
        (7, [b"7"]),
        (True, [b"true"]),
        (1.5, [b"1.5"]),
        (["a", b"\xff", None, 3], [b"a", b"\xff", None, b"3"]),
        (["a"], [b'["a"]']),
        ([], [b"[]"]),
        ([{"queue": "q"}, {"queue": "r"}], [b'[{"queue":"q"},{"queue":"r"}]']),
        ({"a": 1}, [b'{"a":1}']),
    ],
)
def test_what_other_brokers_headers_become(value: Any, written: list[bytes | None]) -> None:
    """A capture of RabbitMQ can be published to Kafka."""
    assert encoded({"h": value}) == [("h", one) for one in written]


@pytest.mark.parametrize("headers", [{"a\0b": "x"}, {"\ud800": "x"}, {"a": "\ud800"}, {"a": object()}])
def test_a_header_that_cannot_be_written(headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="cannot be written to Kafka"):
        encoded(headers)


def test_where_a_message_died_is_past_when_it_is_published() -> None:
    headers = {"a": "1", "x-chronicle-partition": 3, "x-chronicle-offset": 7}
    assert record_of(Outgoing(b"x", headers))[2] == [("a", b"1")]
