"""When a file that cannot be written is tried again, and what is logged. The clock is passed in."""

from __future__ import annotations

import logging
from collections import deque
from itertools import pairwise

from chronicle.core.notice import Notice
from chronicle.transports.local.schema import Stalled
from chronicle.transports.local.stall import AGAIN, HURRIED, LOGGED_AFTER, Stall

LOCKED = Stalled("queue.db is locked", needs_room=False)
FULL = Stalled("queue.db cannot grow", needs_room=True)


def tries(stall: Stall, error: Stalled, seconds: float, start: float = 0.0) -> list[float]:
    """When it is tried in so many seconds, if every try fails."""
    now, seen = start, []
    while now <= start + seconds:
        seen.append(now)
        stall.failed(error, now, unsettled=5)
        now += stall.left(now)
    return seen


def test_the_delay_between_tries_grows_up_to_its_limit() -> None:
    seen = tries(Stall(deque()), FULL, 60)
    waits = [round(after - before, 3) for before, after in pairwise(seen)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (AGAIN.initial, AGAIN.maximum)
    assert len(seen) < 25


def test_D_11_a_process_that_ends_tries_at_once_and_more_often() -> None:
    stall = Stall(deque())
    tries(stall, LOCKED, 60)
    stall.hurry()
    assert stall.left(60) == 0
    stall.failed(LOCKED, 60, unsettled=5)
    assert round(stall.left(60), 3) == HURRIED


def test_one_line_when_it_begins_and_one_when_it_is_over() -> None:
    notices: deque[Notice] = deque()
    stall = Stall(notices)
    tries(stall, FULL, 60)
    stall.passed(61)
    stall.passed(62)
    begun, over = notices
    assert (begun.event, begun.level, begun.facts) == ("queue.full", logging.ERROR, {"unsettled": 5})
    assert (over.event, over.level, over.facts["after_ms"]) == ("queue.writable", logging.INFO, 61_000)


def test_a_lock_is_told_when_it_lasts_and_not_before() -> None:
    """Neighbours often write for a moment; that is no news."""
    notices: deque[Notice] = deque()
    stall = Stall(notices)
    tries(stall, LOCKED, LOGGED_AFTER * 0.9)
    stall.passed(LOGGED_AFTER)
    assert not notices
    tries(stall, LOCKED, LOGGED_AFTER * 3, start=10)
    assert [(notice.event, notice.level) for notice in notices] == [("queue.busy", logging.WARNING)]


def test_a_disk_that_fills_up_behind_a_lock_is_told_too() -> None:
    notices: deque[Notice] = deque()
    stall = Stall(notices)
    tries(stall, LOCKED, 5)
    tries(stall, FULL, 5, start=6)
    assert [notice.event for notice in notices] == ["queue.busy", "queue.full"]


def test_afterwards_everything_is_as_before() -> None:
    notices: deque[Notice] = deque()
    stall = Stall(notices)
    tries(stall, FULL, 60)
    stall.passed(61)
    assert stall.left(61) == 0
    assert round(tries(stall, FULL, 1, start=100)[1], 3) == 100 + AGAIN.initial
    assert [notice.event for notice in notices] == ["queue.full", "queue.writable", "queue.full"]
