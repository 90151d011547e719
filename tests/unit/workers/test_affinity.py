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

from chronicle.workers.affinity import Affinity
from support.waiting import wait_for
from support.workers import PATIENCE

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
def kept(cpu: int | None) -> Iterator[tuple[Affinity, Worker]]:
    """Two workers, one of them at hand, that are kept there."""
    workers = (Worker(), Worker())
    affinity = Affinity([worker.thread for worker in workers], cpus())
    try:
        affinity.keep_on(cpu)
        yield affinity, workers[0]
    finally:
        affinity.keep_on(None)
        for worker in workers:
            worker.end()


def test_the_workers_share_the_cpu_that_was_chosen_until_another_or_none_is() -> None:
    everything = cpus()
    one, other = sorted(everything)[:2]
    with kept(one) as (affinity, worker):
        assert worker.ask(cpus) == {one}
        for chosen in (one, other, None, other):
            affinity.keep_on(chosen)
            assert affinity.cpu == chosen
            assert worker.ask(cpus) == (everything if chosen is None else {chosen})


def test_nobody_else_is_kept_there() -> None:
    everything = cpus()
    with kept(min(everything)):
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
def test_a_program_that_a_syncer_starts_may_use_all(start: Callable[[], str]) -> None:
    everything = cpus()
    with kept(min(everything)) as (_, worker):
        assert worker.ask(start).strip() == str(sorted(everything))


def test_a_thread_that_a_syncer_starts_may_use_all_as_soon_as_the_others_may() -> None:
    everything = cpus()
    with kept(min(everything)) as (affinity, worker):
        started = worker.ask(Worker)
        affinity.keep_on(None)
        assert started.ask(cpus) == everything
        started.end()


def test_the_workers_are_let_go_even_if_nobody_can_tell_which_threads_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = cpus()
    with kept(min(everything)) as (affinity, worker):
        monkeypatch.setattr(os, "listdir", no_descriptor_left)
        affinity.keep_on(None)
        assert worker.ask(cpus) == everything


def no_descriptor_left(_path: str) -> list[str]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_threads_that_have_ended_are_no_problem() -> None:
    everything = cpus()
    with kept(None) as (affinity, worker):
        worker.end()
        wait_for(lambda: not worker.thread.is_alive(), PATIENCE, "the end of a thread")
        affinity.keep_on(min(everything))
