"""The text that is committed with an offset: exact, bounded, and believed only if it is ours."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.transports.kafka.metadata import HEAD, LAST, Run, read, unite, write

offsets = st.integers(0, 10**12)
lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300)
long_lengths = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=20)


def runs_of(offset: int, pairs: list[tuple[int, int]]) -> list[Run]:
    ends = list(accumulate((gap + length for gap, length in pairs), initial=offset))[1:]
    return [(end - length, end) for end, (_, length) in zip(ends, pairs, strict=True)]


@given(offsets, lengths | long_lengths)
def test_what_is_written_is_read(offset: int, pairs: list[tuple[int, int]]) -> None:
    runs = runs_of(offset, pairs)
    text = write(offset, runs, 100_000)
    assert text.isascii()
    assert read(offset, text if len(text) < 8192 else "") == (runs if len(text) < 8192 else [])


def test_a_run_may_begin_at_the_offset_itself() -> None:
    assert read(7, write(7, [(7, 9), (12, 13)])) == [(7, 9), (12, 13)]


def test_nothing_is_written_as_nothing() -> None:
    assert write(7, []) == ""
    assert read(7, "") == []


@given(offsets, lengths | long_lengths, st.integers(0, 400))
def test_text_that_does_not_fit_is_cut_at_the_far_end(
    offset: int, pairs: list[tuple[int, int]], room: int
) -> None:
    runs = runs_of(offset, pairs)
    text = write(offset, runs, room)
    assert len(text) <= room
    told = read(offset, text)
    reach = told[-1][1] if told else offset
    assert told == [(begin, min(end, reach)) for begin, end in runs if begin < reach]
    if room >= HEAD + 4 and runs[0][1] - offset <= 24:
        assert told  # where there is room for a little, a little is told


def test_the_widest_span_fits_whatever_is_settled_in_it() -> None:
    """Ten thousand offsets, and every second one is open."""
    runs = [(at, at + 1) for at in range(1, 10_000, 2)]
    text = write(0, runs)
    assert len(text) <= 2000
    assert read(0, text) == runs


@given(offsets, lengths, st.data())
def test_damage_is_noticed(offset: int, pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    text = write(offset, runs_of(offset, pairs))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("0z,:+A\n\u0660").filter(lambda it: it != text[place]))
    assert read(offset, text[:place] + other + text[place + 1 :]) == []
    assert read(offset, text[:place]) == []
    assert read(offset, f"{text} ") == []


@given(offsets, offsets, lengths)
def test_the_text_of_another_offset_is_not_believed(
    offset: int, other: int, pairs: list[tuple[int, int]]
) -> None:
    text = write(offset, runs_of(offset, pairs))
    assert (read(other, text) == []) is (other != offset)


@given(offsets, st.text() | st.from_regex(r"c[12]:[0-9a-z]{1,7}:[0-9a-z,+/]{0,40}", fullmatch=True))
def test_foreign_text_is_nothing(offset: int, text: str) -> None:
    assert read(offset, text) == []


@pytest.mark.parametrize(
    "text",
    ["c1", "c1:", "c1::", "c1:0:-1,4", "c3:0:1,4", "c1:0:" + "z," * 5000, "\0" * 20, "c2:0:====", "c1:1,4"],
)
def test_absurd_text_is_nothing(text: str) -> None:
    assert read(0, text) == []
    assert read(-1001, text) == []


def test_offsets_that_cannot_be_are_nothing() -> None:
    assert read(LAST - 10, write(LAST - 10, [(LAST - 5, LAST - 2)])) == [(LAST - 5, LAST - 2)]
    assert read(LAST - 10, write(LAST - 10, [(LAST - 5, LAST + 2)])) == []


@given(lengths, lengths)
def test_united_runs_hold_what_either_holds(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    runs, others = runs_of(0, one), runs_of(3, other)
    united = unite(runs, others)
    assert held(united) == held(runs) | held(others)
    assert all(earlier[1] < later[0] for earlier, later in pairwise(united))


def held(runs: list[Run]) -> set[int]:
    return {offset for begin, end in runs for offset in range(begin, end)}
