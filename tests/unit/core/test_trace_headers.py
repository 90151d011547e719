"""Which trace or conversation a message names: what a producer writes is checked, or it does not count."""

from __future__ import annotations

from typing import Any, Final

import pika
import pytest

from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.trace_headers import correlation_id_in, traceparent_in
from chronicle.transports.local.contents import names_trace as local_names_trace
from chronicle.transports.local.contents import pack
from chronicle.transports.rabbitmq.codec.decode import names_trace, open_envelope
from chronicle.transports.redis.entries import names_trace as redis_names_trace
from chronicle.transports.seam import Outgoing

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
VALID: Final = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("value", [VALID, f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-09"])
def test_a_valid_one_is_taken_as_it_is(value: str) -> None:
    assert traceparent_in({"traceparent": value}) == value


def test_of_a_later_version_the_part_that_is_known_is_taken() -> None:
    assert traceparent_in({"traceparent": f"01-{TRACE}-{SPAN}-01-what-comes-then"}) == f"01-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "value",
    [
        None, 7, b"x", [VALID], "", "x", VALID[:-1], VALID.upper(), f" {VALID}", f"{VALID}\n",
        f"{VALID}-more", f"01-{TRACE}-{SPAN}-01more", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01", VALID.replace("0af", "０af"), f"00-{TRACE}-{SPAN}-0g",
    ],
)  # fmt: skip
def test_what_is_not_valid_does_not_count(value: Any) -> None:
    assert traceparent_in({"traceparent": value}) is None


@pytest.mark.parametrize(
    ("headers", "properties", "found"),
    [
        ({}, {"correlation_id": "c-1"}, "c-1"),
        ({"correlation_id": "c-1"}, {}, "c-1"),
        ({"correlation_id": "header"}, {"correlation_id": "property"}, "property"),
        ({"correlation_id": "c-1"}, {"correlation_id": ""}, "c-1"),
        ({"correlation_id": b"\xff"}, {"correlation_id": 7}, None),
        ({}, {}, None),
    ],
)
def test_the_correlation_id_is_a_property_or_else_a_header(
    headers: dict[str, Any], properties: dict[str, Any], found: str | None
) -> None:
    assert correlation_id_in(headers, properties) == found


def encoded(**properties: Any) -> bytes:
    return b"".join(pika.BasicProperties(**properties).encode())


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({}, False),
        ({"content_type": "application/json", "delivery_mode": 2}, False),
        ({"headers": {"x-other": "y"}, "reply_to": "r", "message_id": "m"}, False),
        ({"correlation_id": "c"}, True),
        ({"headers": {"correlation_id": "c"}}, True),
        ({"headers": {"traceparent": VALID}}, True),
    ],
)
def test_rabbitmq_asks_the_bytes(properties: dict[str, Any], names: bool) -> None:
    """A plain ack's line must not decode headers (shared/performance.md)."""
    assert names_trace(encoded(**properties)) is names
    assert not names_trace(b"")


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ([b"data", b"{}"], False),
        ([b"data", b"{}", b"x", b"y"], False),
        ([b"data", b"{}", b"traceparent", VALID.encode()], True),
        ([b"data", b"{}", b"correlation_id", b"c"], True),
    ],
)
def test_redis_asks_the_names_of_the_fields(fields: list[bytes], names: bool) -> None:
    assert redis_names_trace((fields, (b"data",))) is names


@pytest.mark.parametrize(
    ("outgoing", "names"),
    [
        (Outgoing(b"{}"), False),
        (Outgoing(b"{}", headers={"x": "y"}), False),
        (Outgoing(b"{}", headers={"traceparent": VALID}), True),
        (Outgoing(b"{}", properties={"correlation_id": "c"}), True),
    ],
)
def test_the_embedded_queue_asks_the_bytes(outgoing: Outgoing, names: bool) -> None:
    assert local_names_trace((pack(outgoing), None)) is names


def test_an_envelope_that_names_none_stays_closed() -> None:
    def refuse(raw: bytes) -> Envelope:
        raise AssertionError("it was opened")

    raw = encoded(headers={"x-other": "y"})
    closed = Delivery(
        b"{}", queue="q", transport="t", open_envelope=refuse, raw_envelope=raw, names_trace=names_trace
    )
    assert closed.traceparent is closed.correlation_id is None


def test_an_envelope_that_names_one_is_opened() -> None:
    raw = encoded(headers={"traceparent": VALID}, correlation_id="c-1")
    opened = Delivery(
        b"{}",
        queue="q",
        transport="t",
        open_envelope=open_envelope,
        raw_envelope=raw,
        names_trace=names_trace,
    )
    assert (opened.traceparent, opened.correlation_id) == (VALID, "c-1")
    again = opened.again(1)
    assert (again.traceparent, again.correlation_id) == (VALID, "c-1")
