"""Deliveries as JSON and back: D-14, R-000-29, R-001-22 and 23, R-002-26 to 28."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.record import RESERVED, binary, dump, from_record, is_record, to_record

RABBIT = Delivery(
    b'{"a": 1}',
    queue="cus.12.deliver",
    transport="rabbitmq",
    redelivered=True,
    counted=3,
    timestamp=1772446272000,
    origin={"exchange": "org.12.deliver", "routing_key": "register.forests", "delivery_tag": 7},
    handle=object(),
    envelope=Envelope(
        {"x-death": [{"count": 2, "time": datetime(2026, 3, 2, tzinfo=UTC)}]}, {"delivery_mode": 2}
    ),
)


def there_and_back(delivery: Delivery) -> Delivery:
    line = dump(to_record(delivery))
    assert b"\n" not in line
    return from_record(json.loads(line))


def facts(delivery: Delivery) -> str:
    """All that must survive; as text, because nan is not equal to itself and 1 equals True."""
    return repr(
        (
            delivery.body, delivery.queue, delivery.transport, delivery.redelivered, delivery.counted,
            delivery.timestamp, sorted(delivery.origin.items()), delivery.envelope,
        )
    )  # fmt: skip


def test_R_000_29_the_record_of_a_rabbitmq_delivery() -> None:
    assert to_record(RABBIT, {"reason": "failed"}) == {
        "transport": "rabbitmq",
        "queue": "cus.12.deliver",
        "redelivered": True,
        "exchange": "org.12.deliver",
        "routing_key": "register.forests",
        "delivery_tag": 7,
        "body": {"base64": "eyJhIjogMX0=", "text": '{"a": 1}', "json": {"a": 1}},
        "headers": {"x-death": [{"count": 2, "time": {"$datetime": "2026-03-02T00:00:00+00:00"}}]},
        "properties": {"delivery_mode": 2},
        "metadata": {"timestamp": 1772446272000, "counted": 3},
        "chronicle": {"reason": "failed"},
    }
    assert facts(there_and_back(RABBIT)) == facts(RABBIT)


def test_R_001_22_the_record_of_a_redis_message() -> None:
    came = Delivery(b"\xff", queue="news", transport="redis", timestamp=5, origin={"channel": "news"})
    assert to_record(came) == {
        "transport": "redis",
        "queue": "news",
        "redelivered": False,
        "channel": "news",
        "payload": {"base64": "/w=="},
        "attributes": {},
        "properties": {},
        "metadata": {"timestamp": 5, "counted": 0},
    }
    assert facts(there_and_back(came)) == facts(came)


def test_R_001_23_the_record_of_a_redis_stream_entry() -> None:
    """D-14: the other fields of an entry are its attributes; a value need not be text."""
    came = Delivery(
        b"{}",
        queue="s",
        transport="redis",
        timestamp=17,
        origin={"stream": "s", "id": "17-0"},
        envelope=Envelope({"kind": "a", "seal": b"\xff"}),
    )
    record = to_record(came)
    assert record["stream"] == "s"
    assert record["id"] == record["metadata"]["stream_id"] == "17-0"
    assert record["payload"] == {"base64": "e30=", "text": "{}", "json": {}}
    assert record["attributes"]["kind"] == "a"
    assert "headers" not in record
    assert facts(there_and_back(came)) == facts(came)


def test_D_14_a_redis_record_with_headers_is_read_too() -> None:
    """Written by hand, or before they were called attributes."""
    record = {"transport": "redis", "queue": "s", "payload": {"base64": "e30="}, "headers": {"kind": "a"}}
    assert from_record(record).headers == {"kind": "a"}
    assert from_record(record | {"attributes": {"kind": "b"}}).headers == {"kind": "b"}
    with pytest.raises(ValueError, match="the record's attributes has the wrong type"):
        from_record(record | {"attributes": []})


def test_attributes_of_another_broker_are_a_fact_like_any_other() -> None:
    came = Delivery(b"{}", queue="q", transport="rabbitmq", origin={"attributes": {"colour": "red"}})
    assert to_record(came)["headers"] == {}
    assert facts(there_and_back(came)) == facts(came)


def test_R_002_26_to_28_the_record_of_a_kafka_record() -> None:
    came = Delivery(
        b'{"a":1}',
        queue="t",
        transport="kafka",
        timestamp=99,
        origin={"topic": "t", "partition": 1, "offset": 5, "key": b"42"},
        envelope=Envelope({"trace": "abc", "raw": b"\xff"}),
    )
    record = to_record(came)
    assert (record["topic"], record["partition"], record["offset"]) == ("t", 1, 5)
    assert record["key"] == {"base64": "NDI=", "text": "42", "json": 42}
    assert record["value"]["json"] == {"a": 1}
    assert record["headers"] == {"trace": "abc", "raw": {"$base64": "/w=="}}
    assert facts(there_and_back(came)) == facts(came)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\xff", {"base64"}),
        (b"hello", {"base64", "text"}),
        (b"1", {"base64", "text", "json"}),
        (b"", {"base64", "text"}),
    ],
)
def test_D_14_the_binary_object(raw: bytes, shown: set[str]) -> None:
    assert set(binary(raw)) == shown


@pytest.mark.parametrize(
    "body",
    [b'{"id": 123456789012345678901234567890}', b"[" * 200 + b"]" * 200, b"[" * 5000, b'"\\u2028\\n"', b"\n"],
)
def test_D_14_any_body_fits_into_one_line(body: bytes) -> None:
    came = Delivery(body, queue="q", transport="local")
    assert there_and_back(came).body == body


def test_D_14_deep_headers_survive() -> None:
    headers: Any = {}
    for _ in range(64):
        headers = {b"\xff": [headers]}
    came = Delivery(b"", queue="q", transport="rabbitmq", envelope=Envelope(headers))
    assert facts(there_and_back(came)) == facts(came)


def test_a_fault_survives() -> None:
    came = Delivery(b"", queue="q", transport="rabbitmq", envelope=Envelope(fault="nested deeper than 64"))
    assert facts(there_and_back(came)) == facts(came)


def in_the_calendar(moment: datetime) -> bool:
    """Not at one of its ends, where moments have no time in UTC: they are refused when they are read."""
    return 1 < moment.year < 9999


ZONES = (
    st.none()
    | st.just(UTC)
    | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.datetimes(timezones=ZONES).filter(in_the_calendar).map(lambda moment: moment.replace(fold=0))
    | st.decimals()
)
TEXTS = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["$", "$map", "$base64", "$int", "base64"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS | st.binary(max_size=4) | st.integers() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = (
    st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(sorted(RESERVED)) | st.just("$map")
)
ANY_DELIVERY = st.builds(
    Delivery,
    st.binary() | SCALARS.map(lambda value: repr(value).encode("utf-8", "replace")),
    queue=st.text(),
    transport=st.sampled_from(["rabbitmq", "redis", "kafka", "local", "file"]),
    redelivered=st.booleans(),
    counted=st.integers(min_value=0, max_value=2**62),
    timestamp=st.none() | st.integers(min_value=0, max_value=2**62),
    origin=st.dictionaries(NAMES, VALUES, max_size=4),
    envelope=st.builds(
        Envelope,
        st.dictionaries(TEXTS | st.binary(max_size=4), VALUES, max_size=4),
        st.dictionaries(TEXTS, VALUES, max_size=4),
        st.text(max_size=5),
    ),
)


@given(ANY_DELIVERY)
def test_D_14_any_delivery_survives(delivery: Delivery) -> None:
    assert facts(there_and_back(delivery)) == facts(delivery)
    assert is_record(to_record(delivery))


@given(ANY_DELIVERY, st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_what_a_caller_adds_changes_nothing(delivery: Delivery, extra: dict[str, Any]) -> None:
    assert facts(from_record(json.loads(dump(to_record(delivery, extra))))) == facts(delivery)


def test_text_and_json_are_for_people_and_not_read_back() -> None:
    record = to_record(RABBIT)
    record["body"] |= {"text": "edited", "json": {"a": 2}}
    assert from_record(record).body == RABBIT.body


@pytest.mark.parametrize(
    "change",
    [
        {"transport": None},
        {"transport": "kafka"},
        {"queue": 5},
        {"body": None},
        {"body": {"text": "x"}},
        {"body": {"base64": "!"}},
        {"body": {"base64": "YQ"}},
        {"body": {"base64": "YQ==\n"}},
        {"body": {"base64": None}},
        {"body": {"base64": "ą"}},
        {"redelivered": 1},
        {"headers": []},
        {"headers": {"$map": 1}},
        {"headers": {"$map": [[{"$map": []}, 1]]}},
        {"headers": {"$what": 1}},
        {"headers": {"a": {"$int": 5}}},
        {"headers": {"a": {"$int": "zz"}}},
        {"headers": {"a": {"$decimal": "x"}}},
        {"headers": {"a": {"$decimal": []}}},
        {"headers": {"a": {"$datetime": "yesterday"}}},
        {"headers": {"a": {"$float": {}}}},
        {"headers": {"a": {"$text": "/w=="}}},
        {"headers": {"a": {"$base64": "AA==", "b": 1}}},
        {"properties": "x"},
        {"metadata": []},
        {"metadata": {"counted": "1"}},
        {"metadata": {"counted": True}},
        {"metadata": {"timestamp": 1.5}},
        {"metadata": {"fault": 1}},
        {"origin": 5},
        {"key": {"base64": 5}},
    ],
)
def test_a_malformed_record_is_a_ValueError(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        from_record(to_record(RABBIT) | change)


KEYS = ["base64", "$map", "$int", "$text", "$decimal", "counted", "a"]
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["base64", "$map", "$int", "$text", "$decimal", "counted", "a"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*sorted(RESERVED), "x"]), JSON))
def test_no_object_raises_anything_but_ValueError(change: dict[str, Any]) -> None:
    with suppress(ValueError):
        assert isinstance(from_record(to_record(RABBIT) | change), Delivery)


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {}, {"transport": "rabbitmq"}, {"schema": "proca:action:2"}]
)
def test_a_message_is_no_record(value: object) -> None:
    assert not is_record(value)


def test_a_value_no_broker_sends_is_a_defect_and_named() -> None:
    with pytest.raises(TypeError, match="type object"):
        to_record(Delivery(b"", queue="q", transport="local", envelope=Envelope({"a": object()})))


@pytest.mark.parametrize("levels", [300, 5000])
def test_a_record_nested_without_end_is_a_ValueError(levels: int) -> None:
    """Under every Python: how deep each of them gets is another matter."""
    deep: Any = []
    for _ in range(levels):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        from_record(to_record(RABBIT) | {"headers": deep})
