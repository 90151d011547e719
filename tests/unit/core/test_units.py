"""Durations and sizes as people write them (design.md §5)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.units import LONGEST, format_duration, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25), ("5s", 5.0), ("10m", 600.0), ("1h", 3600.0), ("2d", 172800.0), ("0", 0.0),
        ("0s", 0.0), ("1.5s", 1.5), (" 5s ", 5.0), ("5 s", 5.0),
    ],
)  # fmt: skip
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "-1s",
        "x",
        "true",
        "1e3s",
        "5S",
        "5min",
        "٥s",
        "inf",
        "nan",
        "1_000s",
        "9" * 5000,
        "999d",
        "s",
    ],
)
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_bare_number_is_told_to_take_a_unit() -> None:
    with pytest.raises(ValueError, match="5s or 5m"):
        parse_duration("5")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MiB", 16 * 1024**2), ("64KiB", 65536), ("1MB", 1_000_000), ("1024", 1024), ("7B", 7),
        ("1.5KiB", 1536), ("2gib", 2 * 1024**3), ("1 MB", 1_000_000),
    ],
)  # fmt: skip
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "x", "true", "1.5", "1TB", "MiB", "1e6", "1_000", "9" * 5000])
def test_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@given(st.integers(0, int(LONGEST * 1000)))
def test_what_is_printed_can_be_read_back(thousandths: int) -> None:
    seconds = thousandths / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds)


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_value_error(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with suppress(ValueError):
            assert parse(text) >= 0
