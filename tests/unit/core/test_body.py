"""The total decoder: X1, X2, Z12 and the bodies of the G-series."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.body import MAX_DEPTH, parse
from chronicle.errors import InvalidMessage

CAP = 16 * 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\xff\xfe",
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        "{}".encode("utf-16"),
        "{}".encode("utf-16-le"),
        "{}".encode("utf-8-sig"),
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b"{'a': 1}",
        b"[1,]",
        b"{} {}",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_X2_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        parse(body, CAP)


def test_Z12_the_size_is_checked_before_anything_is_parsed() -> None:
    assert parse(b"[1]", 3) == [1]
    with pytest.raises(InvalidMessage, match="4 bytes, the limit is 3"):
        parse(b"{{{{", 3)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
@pytest.mark.parametrize("levels", [1, MAX_DEPTH - 2, MAX_DEPTH, MAX_DEPTH + 2, 1000, 1022, 1026, 5000])
def test_X2_nesting_is_bounded(opening: bytes, closing: bytes, levels: int) -> None:
    per_turn = opening.count(b"[") + opening.count(b"{")
    turns = max(levels // per_turn, 1)
    body = opening * turns + (b"[1]" if opening == b"[" else b"1") + closing * turns
    depth = turns * per_turn + (opening == b"[")
    if depth <= MAX_DEPTH:
        assert parse(body, CAP)
    else:
        with pytest.raises(InvalidMessage):
            parse(body, CAP)


def test_X2_a_wide_body_is_not_a_deep_one() -> None:
    body = json.dumps([{"a": [1, "[{"]}] * 1000).encode()
    assert parse(body, CAP) == json.loads(body)


def test_X2_of_equal_keys_the_last_wins() -> None:
    assert parse(b'{"a": 1, "a": 2}', CAP) == {"a": 2}


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63) - 1, 2**64 - 1, 2**64, 2**64 + 1, 10**300 + 7])
def test_X2_whole_numbers_stay_exact(number: int) -> None:
    value = parse(f'{{"id": {number}, "text": "{number}", "ratio": 0.5}}'.encode(), CAP)
    assert value == {"id": number, "text": str(number), "ratio": 0.5}
    assert type(value["id"]) is int


@given(st.binary(max_size=200))
def test_X1_any_bytes_end_in_a_value_or_in_InvalidMessage(body: bytes) -> None:
    try:
        value = parse(body, 150)
    except InvalidMessage:
        return
    assert value == json.loads(body)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(JSON, st.booleans())
def test_X1_whatever_python_writes_is_read_as_it_was(value: Any, escaped: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=escaped).encode(), CAP) == value


def test_Z5_an_error_holds_no_content() -> None:
    with pytest.raises(InvalidMessage) as caught:
        parse(b'{"email": "ada@example.org", oops}', CAP)
    assert "ada" not in str(caught.value)
    assert caught.value.__suppress_context__
