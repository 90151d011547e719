"""Decoding messages as the type that a program expects (R-003-36)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.decoder import decoder_of
from chronicle.errors import InvalidMessage, SettingError
from support.proca_messages import CANARY


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Line:
    article: str
    pieces: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    price: float
    lines: list[Line]
    size: Size = Size.SMALL
    note: str | None = None
    kind: Literal["gift", "usual"] = "usual"
    tags: dict[str, bool] = field(default_factory=dict)
    pair: tuple[int, ...] = ()
    parent: Order | None = None
    anything: Any = None
    derived: str = field(init=False, default="x")


class Contact(TypedDict):
    email: str
    age: NotRequired[int]


def test_a_dataclass_with_everything_in_it() -> None:
    decode = decoder_of(Order)
    value = {
        "id": 1,
        "price": 2,
        "lines": [{"article": "tea"}, {"article": "cup", "pieces": 3, "unknown": True}],
        "size": "large",
        "note": None,
        "kind": "gift",
        "tags": {"new": True},
        "pair": [1, 2],
        "parent": {"id": 0, "price": 0.5, "lines": []},
        "anything": [1, {}],
    }
    assert decode(value) == Order(
        1, 2.0, [Line("tea"), Line("cup", 3)], Size.LARGE, None, "gift", {"new": True}, (1, 2),
        Order(0, 0.5, []), [1, {}],
    )  # fmt: skip


def test_a_typed_dict_is_checked_and_stays_a_dict() -> None:
    decode = decoder_of(Contact)
    assert decode({"email": "e", "age": 3, "more": 1}) == {"email": "e", "age": 3}
    with pytest.raises(InvalidMessage, match=r"^\.email is missing$"):
        decode({"age": 3})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"price": 1, "lines": []}, ".id is missing"),
    ({"id": True, "price": 1, "lines": []}, ".id is not a whole number"),
    ({"id": 1.0, "price": 1, "lines": []}, ".id is not a whole number"),
    ({"id": 1, "price": CANARY, "lines": []}, ".price is not a number"),
    ({"id": 1, "price": 1, "lines": {}}, ".lines is not an array"),
    ({"id": 1, "price": 1, "lines": [{"article": 1}]}, ".lines.article is not a text"),
    ({"id": 1, "price": 1, "lines": [], "size": CANARY}, ".size is no Size"),
    ({"id": 1, "price": 1, "lines": [], "kind": CANARY}, ".kind is none of the values it may have"),
    ({"id": 1, "price": 1, "lines": [], "tags": {CANARY: 1}}, ".tags is not true or false"),
    ({"id": 1, "price": 1, "lines": [], "parent": {"id": 1}}, ".parent.price is missing"),
]


@pytest.mark.parametrize(("value", "why"), WRONG)
def test_what_is_wrong_is_named_by_the_field_and_never_quoted(value: dict[str, Any], why: str) -> None:
    """D-21."""
    with pytest.raises(InvalidMessage) as caught:
        decoder_of(Order)(value)
    # Of several forms that a field may have, the last one's problem is told.
    assert str(caught.value) in (why, ".parent is not null")
    assert CANARY not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON | st.dictionaries(st.sampled_from(["id", "price", "lines", "parent", "pair"]), JSON))
def test_whatever_comes_is_a_value_or_bad_input(value: Any) -> None:
    decode = decoder_of(Order)
    with suppress(InvalidMessage):
        assert isinstance(decode(value), Order)


@dataclass
class Unreadable:
    when: complex


@pytest.mark.parametrize("wanted", [Unreadable, list[complex], dict[int, str], 3])
def test_a_type_that_cannot_be_decoded_is_refused_at_once(wanted: Any) -> None:
    with pytest.raises(SettingError):
        decoder_of(wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        str, int, float, bool, type(None), list, tuple, set, Size, list[Order], list[dict[str, int]],
        tuple[Order, ...], Literal["gift"], Annotated[list[Order], "all"], int | None,
    ],
)  # fmt: skip
def test_what_no_message_can_be_is_refused_at_once(wanted: Any) -> None:
    """A message is a JSON object: each of them would be bad input."""
    with pytest.raises(SettingError, match="a message is a JSON object") as caught:
        decoder_of(wanted)
    assert "dataclass" in caught.value.remedy


@pytest.mark.parametrize("wanted", [dict, dict[str, int], Any, object, Order | Contact, dict | None])
def test_what_an_object_may_be_is_decoded(wanted: Any) -> None:
    value = {"id": 1, "price": 2, "lines": []} if wanted == Order | Contact else {"id": 1}
    assert decoder_of(wanted)(value) in (value, Order(1, 2.0, []))
