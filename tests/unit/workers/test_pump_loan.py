"""The pump lent out: one thread at a time, taken back from whoever does not answer (RB5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from chronicle.errors import ConnectionLost
from chronicle.transports.waker import Waker
from chronicle.workers.base import Workers
from chronicle.workers.loop_host import LoopHost
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import Loan
from support.waiting import wait_for
from support.workers import PATIENCE, deliveries, make


class Pump:
    """Turned by whoever has it; remembers the threads and whether two were ever in it at once."""

    def __init__(self, workers: Workers | None = None, mailbox: Mailbox | None = None) -> None:
        self.waker = Waker()
        self.threads: set[int] = set()
        self.turns = 0
        self.settled = 0
        self.crowded = False
        self.give_back = False
        self.error: BaseException | None = None
        self._inside = False
        self._mailbox = mailbox

    def turn(self, patience: float) -> float | None:
        self.crowded |= self._inside
        self._inside = True
        self.threads.add(threading.get_ident())
        if self._mailbox is not None:
            self.settled += len(self._mailbox.take())
            self._mailbox.pump_sleeps = True
        self.waker.wait(0.0 if self._mailbox else patience)
        if self._mailbox is not None:
            self._mailbox.pump_sleeps = False
        self.turns += 1
        self._inside = False
        if self.error is not None:
            raise self.error
        return None if self.give_back else 0.25


@contextmanager
def lent(workers: Workers, pump: Pump) -> Iterator[Callable[[], None]]:
    """The pump with these workers, in a thread that stands for the runner's; calls wait for its return."""
    raised: list[BaseException] = []

    def lend() -> None:
        try:
            workers.borrow(pump.turn, pump.waker.fileno())
        except BaseException as error:
            raised.append(error)

    home = threading.Thread(target=lend)
    home.start()

    def returned() -> None:
        home.join(PATIENCE)
        assert not home.is_alive(), "the pump did not come home"
        if raised:
            raise raised[0]

    yield returned
    pump.give_back = True
    pump.waker.wake()
    home.join(PATIENCE)


def quick(_message: bytes) -> bool:
    return True


async def quick_async(_message: bytes) -> bool:
    return True


@pytest.fixture(params=[quick, quick_async], ids=["threads", "loop"])
def started(request: pytest.FixtureRequest) -> Iterator[tuple[Workers, Mailbox, Pump]]:
    pump = Pump()
    mailbox = Mailbox(pump.waker.wake)
    pump._mailbox = mailbox
    workers = make(request.param, mailbox, 3)
    workers.start()
    wait_for(workers.can_borrow, PATIENCE, "somebody who would turn the pump")
    yield workers, mailbox, pump
    assert workers.stop(PATIENCE)


def test_the_borrowers_turn_the_pump_one_at_a_time(started: tuple[Workers, Mailbox, Pump]) -> None:
    workers, _, pump = started
    with lent(workers, pump):
        for first in range(0, 2000, 20):
            workers.submit(deliveries(20, first))
            pump.waker.wake()
        wait_for(lambda: pump.settled == 2000, PATIENCE, "all results settled")
    assert not pump.crowded
    assert threading.get_ident() not in pump.threads


def test_it_comes_home_when_the_turn_gives_it_back(started: tuple[Workers, Mailbox, Pump]) -> None:
    workers, _, pump = started
    pump.give_back = True
    with lent(workers, pump) as returned:
        returned()
    assert pump.turns == 1


def test_what_a_turn_raises_is_raised_at_home(started: tuple[Workers, Mailbox, Pump]) -> None:
    workers, _, pump = started
    pump.error = ConnectionLost("gone")
    with lent(workers, pump) as returned, pytest.raises(ConnectionLost, match="gone"):
        returned()


def test_a_ring_from_any_thread_is_heard(started: tuple[Workers, Mailbox, Pump]) -> None:
    """A signal handler rings the transport, wherever the pump is."""
    workers, _, pump = started
    with lent(workers, pump) as returned:
        wait_for(lambda: pump.turns > 0, PATIENCE, "the first turn")
        pump.give_back = True
        pump.waker.wake()
        returned()


def test_RB5_it_is_taken_back_from_a_loop_that_is_blocked() -> None:
    release = threading.Event()

    async def blocks(_message: bytes) -> bool:
        return release.wait(PATIENCE)

    pump = Pump()
    mailbox = Mailbox(pump.waker.wake)
    workers = make(blocks, mailbox)
    workers.start()
    with lent(workers, pump) as returned:
        wait_for(lambda: pump.turns > 0, PATIENCE, "the first turn")
        workers.submit(deliveries(1))
        returned()
        assert not workers.can_borrow()
        release.set()
        wait_for(workers.can_borrow, PATIENCE, "a loop that answers again")
    assert workers.stop(PATIENCE)


def test_RB5_it_is_taken_back_when_all_threads_are_at_work() -> None:
    release = threading.Event()

    def works_long(_message: bytes) -> bool:
        return release.wait(PATIENCE)

    pump = Pump()
    mailbox = Mailbox(pump.waker.wake)
    workers = make(works_long, mailbox, 2)
    workers.start()
    wait_for(workers.can_borrow, PATIENCE, "an idle thread")
    with lent(workers, pump) as returned:
        wait_for(lambda: pump.turns > 0, PATIENCE, "the first turn")
        workers.submit(deliveries(2))
        pump.waker.wake()
        returned()
        release.set()
        wait_for(lambda: len(mailbox) == 2, PATIENCE, "both results")
    assert workers.stop(PATIENCE)


def test_RB5_one_who_sleeps_leads_when_all_who_are_awake_are_at_work() -> None:
    """The one who led took what came: others sleep, and the next message is not kept waiting."""
    release = threading.Event()
    inside: list[bytes] = []

    def works_long(message: bytes) -> bool:
        inside.append(message)
        return release.wait(PATIENCE)

    pump = Pump()
    workers = make(works_long, Mailbox(pump.waker.wake), 6)
    workers.start()
    wait_for(workers.can_borrow, PATIENCE, "idle threads")

    def turn(patience: float) -> float | None:
        due = pump.turn(patience)
        if pump.turns == 1:
            workers.submit(deliveries(2))
        return due

    home = threading.Thread(target=lambda: workers.borrow(turn, pump.waker.fileno()))
    home.start()
    wait_for(lambda: len(inside) == 2, PATIENCE, "two at work")
    turns = pump.turns
    wait_for(lambda: pump.turns > turns + 4, PATIENCE, "further turns")
    assert home.is_alive()
    pump.give_back = True
    home.join(PATIENCE)
    release.set()
    assert workers.stop(PATIENCE)


def test_a_loan_that_is_over_is_not_turned() -> None:
    turned: list[float] = []

    def turn(patience: float) -> float | None:
        turned.append(patience)
        return 0.25

    loan = Loan(turn)
    assert loan.turn(0.0) == 0.25
    assert loan.wait() is False
    assert loan.turn(0.0) is None
    assert turned == [0.0]


def test_nobody_else_turns_it_meanwhile() -> None:
    inside, go = threading.Event(), threading.Event()

    def turn(_patience: float) -> float | None:
        inside.set()
        go.wait(PATIENCE)
        return 0.25

    loan = Loan(turn)
    borrower = threading.Thread(target=loan.turn, args=(0.0,))
    borrower.start()
    assert inside.wait(PATIENCE)
    assert loan.turn(0.0) is None
    go.set()
    borrower.join(PATIENCE)


def test_a_turn_that_does_not_return_is_waited_for_in_short_steps_and_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """X5, Rule 1: nobody else may turn the pump; whoever waits stays free for a second signal."""
    monkeypatch.setattr("chronicle.workers.pump_loan.HANGS", 0.1)
    inside, go = threading.Event(), threading.Event()

    def turn(_patience: float) -> float | None:
        inside.set()
        go.wait(PATIENCE)
        return None

    loan = Loan(turn)
    borrower = threading.Thread(target=loan.turn, args=(0.0,))
    borrower.start()
    assert inside.wait(PATIENCE)
    returned: list[bool] = []
    home = threading.Thread(target=lambda: returned.append(loan.wait()))
    home.start()
    wait_for(lambda: "has not returned" in caplog.text, PATIENCE, "a word about the turn")
    assert not returned
    go.set()
    home.join(PATIENCE)
    borrower.join(PATIENCE)
    assert returned == [True]
    assert caplog.text.count("has not returned") == 1


def test_other_tasks_of_the_loop_go_on_while_it_hosts_the_pump() -> None:
    """A person's background task is not starved by the pump."""
    ticks: list[int] = []

    class Syncer:
        async def __aenter__(self) -> Syncer:
            self._task = asyncio.create_task(self._tick())
            return self

        async def __aexit__(self, *_exc: Any) -> None:
            self._task.cancel()

        async def _tick(self) -> None:
            while True:
                ticks.append(1)
                await asyncio.sleep(0)

        async def __call__(self, _message: bytes) -> bool:
            return True

    pump = Pump()
    mailbox = Mailbox(pump.waker.wake)
    pump._mailbox = mailbox
    workers = make(Syncer, mailbox, 2)
    workers.start()
    with lent(workers, pump):
        workers.submit(deliveries(200))
        wait_for(lambda: pump.settled == 200, PATIENCE, "all results settled")
        before = len(ticks)
        wait_for(lambda: len(ticks) > before, PATIENCE, "the background task")
    assert workers.stop(PATIENCE)


def turns_of(due: float) -> tuple[int, list[Any]]:
    """How often a pump that says so is turned in 0.2 s by the loop alone, and what the loop complained of."""
    turns, problems = 0, list[Any]()

    def turn(_patience: float) -> float:
        nonlocal turns
        turns += 1
        return due

    async def busy_then_idle() -> int:
        nonlocal turns
        loop, waker = asyncio.get_running_loop(), Waker()
        loop.set_exception_handler(lambda _loop, context: problems.append(context))
        hosting = LoopHost(loop, waker.fileno(), Loan(turn), Mailbox(waker.wake))
        hosting.begin()
        for _ in range(100):
            hosting.ask()
            hosting.ask()
            await asyncio.sleep(0.001)
        turns = 0
        await asyncio.sleep(0.2)
        hosting.end()
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(busy_then_idle()), problems


def test_what_is_due_soon_is_waited_for_once_however_often_the_pump_is_turned() -> None:
    """Each turn sees the same thing due: a timer for each would make more of them every second."""
    turns, problems = turns_of(0.02)
    assert 2 <= turns < 30
    assert problems == []


@pytest.mark.parametrize("due", [0.0001, 0.0004, 0.0006, 0.0015])
def test_what_is_due_in_less_than_a_millisecond_is_waited_for_too(due: float) -> None:
    """The loop counts in milliseconds. A turn for every one of them is enough, and none is a mistake."""
    turns, problems = turns_of(due)
    assert 10 < turns < 260
    assert problems == []
