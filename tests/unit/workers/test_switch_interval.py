"""Python's switch interval: longer while syncers wait for a network, never while somebody computes (RB5)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from chronicle.transports.waker import Waker
from chronicle.workers.pump_loan import Loan
from chronicle.workers.switch_interval import LATE, LONGER, ROUND, SwitchInterval
from support.waiting import wait_for
from support.workers import PATIENCE, make, make_mailbox


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    """Python's own interval, which every test leaves as it was."""
    before = sys.getswitchinterval()
    yield before
    assert sys.getswitchinterval() == before
    sys.setswitchinterval(before)


def test_it_is_longer_while_turns_are_short_and_the_usual_one_as_soon_as_they_are_not(usual: float) -> None:
    switching = SwitchInterval(100)
    switching.judge(0.001)
    assert sys.getswitchinterval() == pytest.approx(LONGER)
    switching.judge(2 * LATE)
    assert sys.getswitchinterval() == usual
    switching.judge(0.0)
    switching.restore()
    assert sys.getswitchinterval() == usual


@pytest.mark.parametrize("threads", [1, 10, 100, 150, 400, 10_000])
def test_a_round_of_turns_of_all_threads_is_bounded(threads: int, usual: float) -> None:
    switching = SwitchInterval(threads)
    switching.judge(0.0)
    interval = sys.getswitchinterval()
    switching.restore()
    assert usual <= interval <= LONGER + 1e-6
    assert interval * threads <= ROUND + 1e-6 or interval == usual


def test_it_is_longer_only_while_threads_have_the_pump(usual: float) -> None:
    waker, give_back = Waker(), threading.Event()
    workers = make(lambda _message: True, make_mailbox(), 3)
    workers.start()
    wait_for(workers.can_borrow, PATIENCE, "somebody who would turn the pump")

    def turn(patience: float) -> float | None:
        waker.wait(min(patience, 0.01))
        return None if give_back.is_set() else 0.25

    home = threading.Thread(target=workers.borrow, args=(turn, waker.fileno()))
    home.start()
    wait_for(lambda: sys.getswitchinterval() > usual, PATIENCE, "a longer interval")
    give_back.set()
    home.join(PATIENCE)
    assert not home.is_alive()
    assert sys.getswitchinterval() == usual
    assert workers.stop(PATIENCE)


def test_a_loan_tells_how_late_it_woke_after_each_step() -> None:
    told: list[float] = []
    loan = Loan(lambda _patience: None)

    def woke(lateness: float) -> None:
        told.append(lateness)
        loan.turn(0.0)

    assert loan.wait(woke)
    assert len(told) == 1
    assert told[0] >= -0.01
