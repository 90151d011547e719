"""Worker threads on one CPU: only they, only for a while, and nobody inherits it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from chronicle.transports.waker import Waker
from chronicle.workers import affinity as module
from chronicle.workers.affinity import Affinity
from chronicle.workers.one_cpu import OneCpu
from support.waiting import wait_for
from support.workers import PATIENCE, make, make_mailbox

pytestmark = pytest.mark.skipif(
    len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="there is one CPU, or no choice"
)
SHOW = "import os; print(sorted(os.sched_getaffinity(0)))"


class Worker:
    """A thread that does what it is told."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def ask(self, order: Callable[[], Any]) -> Any:
        self._orders.put(order)
        return self._answers.get(timeout=PATIENCE)

    def end(self) -> None:
        self._orders.put(None)
        self.thread.join(PATIENCE)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            self._answers.put(order())


def cpus() -> set[int]:
    return os.sched_getaffinity(0)


@contextmanager
def kept(monkeypatch: pytest.MonkeyPatch, chosen: list[int | None]) -> Iterator[tuple[Affinity, Worker]]:
    """Two workers, one of them at hand, that are judged so."""
    choose = iter(chosen)
    monkeypatch.setattr(OneCpu, "judge", lambda _self, _pulse: next(choose))
    workers = (Worker(), Worker())
    affinity = Affinity([worker.thread for worker in workers], lambda: 0)
    try:
        affinity.judge()
        yield affinity, workers[0]
    finally:
        affinity.restore()
        for worker in workers:
            worker.end()


def test_the_workers_share_the_cpu_that_was_chosen_until_another_or_none_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = cpus()
    one, other = sorted(everything)[:2]
    with kept(monkeypatch, [one, one, other, None, other]) as (affinity, worker):
        assert worker.ask(cpus) == {one}
        affinity.judge()
        assert worker.ask(cpus) == {one}
        affinity.judge()
        assert worker.ask(cpus) == {other}
        affinity.judge()
        assert worker.ask(cpus) == everything
        affinity.judge()
        assert worker.ask(cpus) == {other}
        affinity.restore()
        assert worker.ask(cpus) == everything


def test_nobody_else_is_kept_there(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = cpus()
    with kept(monkeypatch, [min(everything)]):
        assert cpus() == everything


@pytest.mark.parametrize(
    "start",
    [
        lambda: (
            subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True).stdout
        ),
        lambda: os.popen(f"{sys.executable} -c '{SHOW}'").read(),
    ],
)
def test_a_program_that_a_syncer_starts_may_use_all(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], str]
) -> None:
    everything = cpus()
    with kept(monkeypatch, [min(everything)]) as (_, worker):
        assert worker.ask(start).strip() == str(sorted(everything))


def test_a_thread_that_a_syncer_starts_may_use_all_as_soon_as_the_others_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = cpus()
    with kept(monkeypatch, [min(everything)]) as (affinity, worker):
        started = worker.ask(Worker)
        affinity.restore()
        assert started.ask(cpus) == everything
        started.end()


def test_the_workers_are_let_go_even_if_nobody_can_tell_which_threads_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = cpus()
    with kept(monkeypatch, [min(everything)]) as (affinity, worker):
        monkeypatch.setattr(os, "listdir", no_descriptor_left)
        affinity.restore()
        assert worker.ask(cpus) == everything


def no_descriptor_left(_path: str) -> list[str]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_threads_that_have_ended_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = cpus()
    with kept(monkeypatch, [None, min(everything)]) as (affinity, worker):
        worker.end()
        wait_for(lambda: not worker.thread.is_alive(), PATIENCE, "the end of a thread")
        affinity.judge()


def test_a_single_thread_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = cpus()
    monkeypatch.setattr(OneCpu, "judge", lambda _self, _pulse: min(everything))
    worker = Worker()
    Affinity([worker.thread], lambda: 0).judge()
    assert worker.ask(cpus) == everything
    worker.end()


def test_a_program_that_was_given_one_cpu_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_cpus", lambda: {0})
    monkeypatch.setattr(OneCpu, "judge", lambda _self, _pulse: pytest.fail("there is no choice"))
    workers = (Worker(), Worker())
    Affinity([worker.thread for worker in workers], lambda: 0).judge()
    for worker in workers:
        worker.end()


def test_the_workers_are_kept_there_only_while_they_have_the_pump(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = cpus()
    monkeypatch.setattr(OneCpu, "judge", lambda _self, _pulse: min(everything))
    waker, give_back = Waker(), threading.Event()
    workers = make(lambda _message: True, make_mailbox(), 3)
    workers.start()
    wait_for(workers.can_borrow, PATIENCE, "somebody who would turn the pump")

    def turn(patience: float) -> float | None:
        waker.wait(min(patience, 0.01))
        return None if give_back.is_set() else 0.25

    def of_syncers() -> list[set[int]]:
        named = [thread for thread in threading.enumerate() if thread.name.startswith("syncer-")]
        return [os.sched_getaffinity(thread.native_id or 0) for thread in named]

    home = threading.Thread(target=workers.borrow, args=(turn, waker.fileno()))
    home.start()
    wait_for(lambda: of_syncers() == [{min(everything)}] * 3, PATIENCE, "threads on one CPU")
    give_back.set()
    home.join(PATIENCE)
    assert of_syncers() == [everything] * 3
    assert workers.stop(PATIENCE)
