"""Where a reader without a group is: the watermark never passes an entry that is not settled."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from chronicle.transports.redis.position import BEGINNING, Position, full, is_id, number


def position(at: bytes = BEGINNING) -> Position:
    made = Position("key", deque())
    made.begin(at, known=False, kept=False)
    return made


def id_(one: int) -> bytes:
    return b"%d-0" % one


def test_it_moves_when_the_oldest_open_entry_is_settled() -> None:
    where = position(id_(10))
    for one in (11, 12, 13):
        where.read(id_(one))
    where.settled(id_(12))
    assert where.settled_to == id_(10)
    where.settled(id_(11))
    assert where.settled_to == id_(12)
    where.settled(id_(13))
    assert (where.settled_to, where.last) == (id_(13), id_(13))


@pytest.mark.parametrize("seed", range(50))
def test_D_12_whatever_the_order_nothing_open_is_behind_it(seed: int) -> None:
    luck = Random(seed)
    where, open_, newest = position(), set[int](), 0
    for _ in range(300):
        if open_ and luck.random() < 0.5:
            done = luck.choice(sorted(open_))
            open_.discard(done)
            where.settled(id_(done))
        else:
            newest += luck.randint(1, 5)  # ids have gaps
            open_.add(newest)
            where.read(id_(newest))
        at, _ = number(where.settled_to)
        assert at <= newest
        assert all(one > at for one in open_)
        if not open_:
            assert at == newest


def test_what_is_not_settled_is_read_again_after_a_rewind() -> None:
    where = position()
    for one in (1, 2, 3):
        where.read(id_(one))
    where.settled(id_(1))
    where.settled(id_(3))
    where.rewind()
    assert where.last == where.settled_to == id_(1)


def test_a_lost_end_leaves_what_is_still_there_open() -> None:
    where = position()
    for one in (1, 2, 3):
        where.read(id_(one))
    where.lost_end(id_(2))
    assert (where.settled_to, where.last) == (BEGINNING, id_(2))
    where.settled(id_(1))
    where.settled(id_(2))
    where.settled(id_(3))  # gone, and of no account
    assert where.settled_to == id_(2)


def test_where_the_operator_begins_is_not_saved_before_something_was_read() -> None:
    where = position(id_(7))
    assert where.is_saved
    where.read(id_(8))
    assert not where.is_saved


def test_what_was_settled_beyond_the_key_is_counted_in_whatever_order() -> None:
    where = Position("key", deque())
    where.begin(id_(1), known=True, kept=True)
    for one in (2, 3, 4, 5):
        where.read(id_(one))
    where.settled(id_(4))
    assert where.unsaved == 0  # saved or not, it is read again: what is before it is open
    where.settled(id_(2))
    assert where.unsaved == 2
    where.rewind()
    assert where.unsaved == 1


def test_ids() -> None:
    assert full("5") == b"5-0"
    assert full("5-3") == b"5-3"
    assert number(b"10-2") > number(b"9-30")
    assert is_id(b"1772446272000-0")
    assert not is_id(b"\xff")
    assert not is_id(b"5-")
