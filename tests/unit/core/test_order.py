"""What `--order` means, and the lane of a message (D-23)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.body import MAX_BODY
from chronicle.core.delivery import Delivery
from chronicle.core.order import Order, OrderKind, parse_order

CONTACT = parse_order("field:contact.contactRef")


def lane(body: bytes, order: Order = CONTACT) -> object:
    return order.lane_by_field(Delivery(body, queue="q", transport="test"))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("none", Order()),
        ("key", Order(OrderKind.KEY)),
        ("partition", Order(OrderKind.PARTITION)),
        ("field:id", Order(OrderKind.FIELD, ("id",))),
        ("field:contact.contactRef", Order(OrderKind.FIELD, ("contact", "contactRef"))),
        ("field:a:b.c", Order(OrderKind.FIELD, ("a:b", "c"))),
    ],
)
def test_the_forms(text: str, meant: Order) -> None:
    assert parse_order(text) == meant


@pytest.mark.parametrize(
    "text", ["", "field", "field:", "field:.", "field:a.", "field:a..b", "key:x", "none:", "None", "keys"]
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"none, key, partition, field:PATH, such as field:contact\.contactRef"
    ):
        parse_order(text)


@pytest.mark.parametrize("value", ["abc", "", 7, 1.5, True, 2**63])
def test_a_text_a_number_or_a_truth_is_a_lane(value: object) -> None:
    assert lane(json.dumps({"contact": {"contactRef": value}}).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"{}",
        b'{"contact": null}',
        b'{"contact": "abc"}',
        b'{"contact": ["contactRef"]}',
        b'{"contact": {"contactRef": null}}',
        b'{"contact": {"contactRef": {"id": 1}}}',
        b'{"contact": {"contactRef": [1]}}',
        b'{"contact": {"contactRef": "abc"}' + b" " * MAX_BODY + b"}",
        b"[" * 100_000,
    ],
)
def test_whatever_else_it_is_has_no_lane(body: bytes) -> None:
    assert lane(body) is None


@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_finding_the_lane_never_fails(body: bytes) -> None:
    hash(lane(body))
