"""The ledger of one partition: nothing unfinished is committed past, and nothing settled comes again (K2)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chronicle.transports.kafka.ledger import Ledger

NO_TEXT = 0
A_LITTLE = 30
PLENTY = 4000


def delivered(ledger: Ledger, *offsets: int) -> Ledger:
    for offset in offsets:
        assert ledger.deliver(offset)
    return ledger


def test_the_watermark_is_the_oldest_open_offset_or_the_one_after_the_newest() -> None:
    ledger = delivered(Ledger(5), 5, 6, 9)
    assert (ledger.watermark, ledger.next, ledger.open, ledger.oldest_open, ledger.span) == (5, 10, 3, 5, 5)
    ledger.settle(6)
    assert ledger.watermark == 5
    ledger.settle(5)
    assert (ledger.watermark, ledger.oldest_open, ledger.span) == (9, 9, 1)
    ledger.settle(9)
    assert (ledger.watermark, ledger.oldest_open, ledger.open, ledger.span) == (10, None, 0, 0)


def test_before_anything_is_known_there_is_nothing_to_commit() -> None:
    ledger = Ledger(None, "c1:0:1,2")
    assert (ledger.watermark, ledger.next, ledger.open, ledger.span, ledger.metadata()) == (None, 0, 0, 0, "")
    ledger.settle(3)
    assert [ledger.watermark] == [None]
    assert ledger.deliver(500)
    assert (ledger.watermark, ledger.next, ledger.span) == (500, 501, 1)


def test_the_end_of_an_empty_partition_is_a_place_to_commit() -> None:
    ledger = Ledger(None)
    ledger.reached(0)
    assert ledger.watermark == 0


def test_zero_is_an_offset_like_any_other() -> None:
    ledger = Ledger(0)
    assert ledger.watermark == 0
    assert ledger.deliver(0)
    assert (ledger.watermark, ledger.oldest_open) == (0, 0)
    assert Ledger(None).deliver(0)


def test_a_gap_is_settled_with_its_neighbours() -> None:
    ledger = delivered(Ledger(0), 0, 7)
    ledger.settle(0)
    assert ledger.watermark == 7


def test_markers_at_the_end_are_passed_when_the_end_was_seen() -> None:
    ledger = delivered(Ledger(0), 0)
    ledger.reached(3)
    assert (ledger.watermark, ledger.next, ledger.span) == (0, 3, 3)
    ledger.settle(0)
    assert ledger.watermark == 3
    ledger.reached(1)
    assert ledger.watermark == 3


def test_unknown_offsets_and_second_settlements_are_ignored() -> None:
    ledger = delivered(Ledger(0), 0, 1)
    for offset in (1, 1, 5, -1, 2**70):
        ledger.settle(offset)
    assert (ledger.watermark, ledger.open) == (0, 1)


def test_what_comes_a_second_time_is_not_handled_again() -> None:
    """As after a seek: one of them is settled, one is open."""
    ledger = delivered(Ledger(0), 0, 1, 2)
    ledger.settle(1)
    assert [ledger.deliver(offset) for offset in (0, 1, 2)] == [False, False, False]
    assert (ledger.open, ledger.watermark) == (2, 0)
    ledger.settle(0)
    assert not ledger.deliver(0)
    assert ledger.watermark == 2


def test_a_log_that_was_made_anew_is_read_from_its_start() -> None:
    """The topic was deleted and made again: what was committed says nothing about these records."""
    old = delivered(Ledger(1000), *range(1000, 1010))
    for offset in range(1001, 1010):
        old.settle(offset)
    ledger = delivered(Ledger(1000, old.metadata()), 0, 1, 2)
    ledger.settle(0)
    assert (ledger.watermark, ledger.metadata()) == (1, "")
    assert ledger.deliver(1005)
    assert not ledger.deliver(0)


def test_what_was_settled_before_is_skipped_and_still_told() -> None:
    first = delivered(Ledger(0), *range(6))
    for offset in (1, 2, 4):
        first.settle(offset)
    second = Ledger(first.watermark, first.metadata())
    assert second.deliver(0)
    third = Ledger(second.watermark, second.metadata())  # taken away again before the rest came
    assert [third.deliver(offset) for offset in range(6)] == [True, False, False, True, False, True]
    third.settle(0)
    assert third.watermark == 3
    third.settle(3)
    assert (third.watermark, third.metadata()) == (5, "")


def test_what_was_settled_right_after_the_watermark_is_told() -> None:
    first = delivered(Ledger(0), 0, 1, 2)
    first.settle(1)
    first.settle(2)
    second = delivered(Ledger(0, first.metadata()), 0)
    second.settle(0)
    assert second.watermark == 1
    third = Ledger(1, second.metadata())
    assert [third.deliver(offset) for offset in (1, 2, 3)] == [False, False, True]
    assert (third.watermark, third.metadata()) == (3, "")


def test_nothing_beyond_the_watermark_is_an_empty_text() -> None:
    ledger = Ledger(3)
    assert ledger.metadata() == ""
    delivered(ledger, 3, 4)
    assert ledger.metadata() == ""
    ledger.settle(3)
    assert ledger.metadata() == ""


@pytest.mark.parametrize(
    "metadata", ["", "somebody else's", "c1:", "c1:0:1,-4", "c2:!!", "x" * 100_000, "\0"]
)
def test_a_text_that_is_not_ours_is_nothing(metadata: str) -> None:
    ledger = delivered(Ledger(3, metadata), 3, 4, 5)
    assert (ledger.watermark, ledger.metadata()) == (3, "")


def test_what_others_committed_meanwhile_is_settled() -> None:
    other = delivered(Ledger(0), *range(10))
    for offset in (0, 1, 4, 5, 8):
        other.settle(offset)
    ledger = delivered(Ledger(0), *range(6))
    ledger.settle(3)
    ledger.unite(other.watermark or 0, other.metadata())
    assert ledger.watermark == 2
    ledger.settle(2)
    assert ledger.watermark == 6
    assert [ledger.deliver(offset) for offset in (6, 7, 8, 9)] == [True, True, False, True]


def test_what_others_committed_further_on_is_not_taken_back() -> None:
    ledger = delivered(Ledger(0), 0, 1)
    ledger.unite(50, "")
    assert (ledger.watermark, ledger.open) == (50, 0)
    assert not ledger.deliver(30)
    assert ledger.deliver(50)


@given(st.integers(1, 400), st.randoms(use_true_random=False), st.integers(0, 300))
def test_truncated_text_only_repeats(number: int, luck: random.Random, room: int) -> None:
    ledger = delivered(Ledger(0), *range(number))
    settled = {offset for offset in range(number) if luck.random() < 0.6}
    for offset in settled:
        ledger.settle(offset)
    text = ledger.metadata(room)
    assert len(text) <= room
    watermark = ledger.watermark
    assert watermark is not None
    again = Ledger(watermark, text)
    skipped = {offset for offset in range(watermark, number) if not again.deliver(offset)}
    assert skipped <= settled
    assert not skipped or {one for one in settled if watermark <= one <= max(skipped)} == skipped


class Partition(RuleBasedStateMachine):
    """A partition with gaps, read by one ledger after the other, each from what the last one committed."""

    @initialize(
        start=st.none() | st.integers(0, 50),
        room=st.sampled_from((NO_TEXT, A_LITTLE, PLENTY)),
    )
    def begin(self, start: int | None, room: int) -> None:
        self.room = room
        self.first = start or 0
        self.end = self.first  # the offset the next record gets
        self.log: list[int] = []
        self.finished: set[int] = set()
        self.open: set[int] = set()
        self.committed: tuple[int | None, str] = (start, "")
        self.assign()

    @rule()
    def assign(self) -> None:
        """The partition comes (back) with what is committed; what was not committed is not known."""
        self.ledger = Ledger(*self.committed)
        self.at = self.committed[0] if self.committed[0] is not None else self.first
        self.watermark = self.committed[0]
        self.open.clear()

    @rule(gap=st.integers(0, 3), number=st.integers(1, 12))
    def produce(self, gap: int, number: int) -> None:
        self.end += gap
        self.log += range(self.end, self.end + number)
        self.end += number

    @rule(gap=st.integers(1, 3))
    def end_a_transaction(self, gap: int) -> None:
        self.end += gap

    @rule(number=st.integers(1, 20))
    def read(self, number: int) -> None:
        for offset in [one for one in self.log if one >= self.at][:number]:
            wanted = self.ledger.deliver(offset)
            if wanted:
                self.open.add(offset)
            else:
                assert offset in self.finished, "a record was skipped that nobody had finished"
            self.at = offset + 1

    @rule()
    def see_the_end(self) -> None:
        if not any(one >= self.at for one in self.log):
            self.ledger.reached(self.end)
            self.at = max(self.at, self.end)

    @rule(back=st.integers(1, 10))
    def seek_back(self, back: int) -> None:
        came = [one for one in self.log if one < self.at and one >= (self.committed[0] or self.first)]
        for offset in came[-back:]:
            assert self.ledger.next <= offset or not self.ledger.deliver(offset)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), number=st.integers(1, 8))
    def finish(self, data: st.DataObject, number: int) -> None:
        for _ in range(min(number, len(self.open))):
            offset = data.draw(st.sampled_from(sorted(self.open)))
            self.open.discard(offset)
            self.finished.add(offset)
            self.ledger.settle(offset)

    @rule()
    def commit(self) -> None:
        watermark = self.ledger.watermark
        if watermark is None:
            return
        self.committed = (watermark, self.ledger.metadata(self.room))
        if self.room == PLENTY:
            again = Ledger(*self.committed)
            for offset in [one for one in self.log if watermark <= one < self.at]:
                # What was finished and never committed is in work again after an assignment.
                assert again.deliver(offset) is (offset not in self.finished or offset in self.open)

    @rule(data=st.data())
    def another_process_commits(self, data: st.DataObject) -> None:
        """It works from the same committed state; the ledger learns of it."""
        if self.committed[0] is None:
            return
        other = Ledger(*self.committed)
        mine = [one for one in self.log if one >= self.committed[0] and other.deliver(one)]
        for offset in data.draw(st.sets(st.sampled_from(mine), max_size=5)) if mine else ():
            other.settle(offset)
            self.finished.add(offset)
        assert other.watermark is not None
        self.committed = (other.watermark, other.metadata(self.room))
        self.ledger.unite(*self.committed)
        self.at = max(self.at, self.ledger.next)
        known = Ledger(*self.committed)
        self.open &= {one for one in self.log if one >= other.watermark and known.deliver(one)}

    @invariant()
    def nothing_unfinished_is_below_the_watermark(self) -> None:
        watermark = self.ledger.watermark
        if watermark is not None:
            assert all(one in self.finished for one in self.log if one < watermark)
            assert watermark <= self.ledger.next
            assert self.watermark is None or watermark >= self.watermark, "it went back"
            self.watermark = watermark

    @invariant()
    def the_counts_are_right(self) -> None:
        assert self.ledger.open == len(self.open)
        assert self.ledger.oldest_open == (min(self.open) if self.open else None)
        assert len(self.ledger.metadata(self.room)) <= self.room


Partition.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPartition = Partition.TestCase
