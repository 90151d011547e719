"""One run of one consumer, measured from the outside.

The time base, the same for all: the queue is filled before; the clock starts when the broker hands out the
first message and stops when the last one is acknowledged, both seen by a watch at the broker. CPU is
what all processes of the consumer used between those two moments, so starting up is not in it. Memory is
the peak until then. From exec to the first message is until the first acknowledgement has arrived. Then
the consumer is killed: stopping well is tested elsewhere and not measured here.

A run counts only if nothing was dead-lettered: a consumer that drops messages is fast. With handlers that
call a server, it counts only if there was a call for every message.
"""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.installing import Installed
from benchmarks.peers import Handler, Task
from benchmarks.places import Place
from benchmarks.proc import Usage, usage
from benchmarks.server import Server

LOOK: Final = 0.005


class BadRun(Exception):
    """A run that does not count; the text says why."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where the consumer stood when so many messages were left; None at the first delivery."""

    left: int | None
    at: float
    used: Usage


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: how many messages, when the process was started, and its marks in order."""

    messages: int
    started: float
    marks: tuple[Mark, ...]

    @property
    def seconds(self) -> float:
        return self.marks[-1].at - self.marks[0].at

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu(self) -> float:
        """CPU seconds for one message."""
        return (self.marks[-1].used.cpu - self.marks[0].used.cpu) / self.messages

    @property
    def peak(self) -> float:
        """Bytes."""
        return float(self.marks[-1].used.peak)

    @property
    def first(self) -> float:
        """Seconds from exec to the first message acknowledged."""
        return self.marks[1].at - self.started


@dataclass(frozen=True, slots=True)
class Run:
    """What one run consists of; `step` asks for a mark each time so many messages are done.

    With `waiting` more messages wait in the queue than are handled until the run is over.
    """

    consumer: Installed
    handler: Handler
    concurrency: int
    messages: int
    body: bytes
    keys: Path | None = None
    step: int | None = None
    timeout: float = 120.0
    waiting: int = 0
    server: Server | None = None


def measure(place: Place, run: Run) -> Sample:
    """Fill a queue, run the consumer over it, and say what it took; BadRun if it does not count."""
    with place.queue() as queue:
        load = run.consumer.peer.load(run.body, queue)
        waiting = max(run.waiting, run.messages)
        place.fill(queue, load, waiting)
        step = run.step or run.messages
        done = (1, *range(step, run.messages, step), run.messages)
        marks = tuple(waiting - count for count in done)
        task = Task(place.url(queue), queue, run.concurrency, run.handler, run.keys)
        if run.server is not None:
            task = replace(task, http=run.server.url, clients=run.server.clients)
        called = _called(run)
        seen: list[Mark] = []
        with (
            place.watch(queue, waiting, marks) as watching,
            _Consumer(run.consumer, task, place.folder) as consumer,
        ):
            deadline = time.monotonic() + run.timeout
            while len(seen) < 1 + len(marks):
                for moment in watching.moments()[len(seen) :]:
                    seen.append(Mark(moment.left, moment.at, usage(consumer.pid)))
                consumer.check(deadline)
                time.sleep(LOOK)
        if dropped := place.dropped(queue):
            raise BadRun(f"{dropped} messages were dropped instead of handled")
        if run.server is not None and (calls := _called(run) - called) < run.messages:
            raise BadRun(f"{run.messages} messages were acknowledged after {calls} calls of the server")
    return Sample(run.messages, consumer.started, tuple(seen))


def _called(run: Run) -> int:
    return run.server.posts() if run.server is not None else 0


class _Consumer:
    """The consumer's process and whatever it starts: a session of its own, ended with this."""

    def __init__(self, installed: Installed, task: Task, folder: Path) -> None:
        self._output = folder / f"{task.queue}.out"
        self._name = installed.peer.name
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("CHRONICLE_", "PROCA_"))
        }
        with contextlib.ExitStack() as ours:
            if installed.peer.terminal:
                screen, output = pty.openpty()
                ours.callback(os.close, output)
                threading.Thread(target=_read_away, args=(screen,), daemon=True).start()
            else:
                output = ours.enter_context(self._output.open("wb")).fileno()
            self.started = time.time()
            self._process = subprocess.Popen(
                installed.peer.command(installed.env, task),
                # A folder without a .env, whose variables would be taken for the person's.
                cwd=folder,
                env=inherited | task.environment(installed.env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> _Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def check(self, deadline: float) -> None:
        """BadRun when the process has ended by itself, or has not done its work in time."""
        if self._process.poll() is not None:
            raise BadRun(f"{self._name} ended with {self._process.returncode}: {self._last()}")
        if time.monotonic() > deadline:
            raise BadRun(f"{self._name} did not finish in time: {self._last()}")

    def _last(self) -> str:
        if not self._output.exists():
            return "no output kept"
        lines = self._output.read_text(errors="replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-3:]) or "no output"


def _read_away(screen: int) -> None:
    """Be the terminal: take what is drawn, so that drawing never waits."""
    with contextlib.suppress(OSError):
        while os.read(screen, 65_536):
            pass
    os.close(screen)
