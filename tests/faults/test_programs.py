"""Programs that consume by themselves, killed and interrupted: `subscribe` and `run` on a real RabbitMQ."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from chronicle.topology import QueueOptions, declare
from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing
from support.fixtures import Broker
from support.waiting import wait_for

PATIENCE: Final = 120.0
WINDOW: Final = 50

JOURNAL: Final = """
import os, sys
from chronicle import RoutingKey, subscribe

url, queue, *until_empty = sys.argv[1:]
journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with subscribe(url, queue, RoutingKey(queue, lambda m: m["id"]), prefetch=50,
               until_empty=bool(until_empty)) as numbers:
    for message in numbers:
        os.write(journal, b"%d\\n" % message.value)
        message.ack()
"""

NOTEBOOK: Final = """
import signal, sys, threading
from chronicle import RoutingKey, subscribe

url, queue = sys.argv[1:]

def cell():
    with subscribe(url, queue, RoutingKey(queue, dict), prefetch=5) as messages:
        for message in messages:
            print("got", message.value["id"], flush=True)
            threading.Event().wait()  # until somebody interrupts

try:
    cell()
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
alive = [thread.name for thread in threading.enumerate() if thread.name == "chronicle"]
print("left", alive, flush=True)
with subscribe(url, queue, RoutingKey(queue, dict), prefetch=5) as messages:
    for number, message in enumerate(messages, 1):
        message.ack()
        if number == 3:
            break
print("done", flush=True)
"""

THREAD: Final = """
import signal, sys, threading, time
import chronicle

url, queue = sys.argv[1:]
endings = []
handle = chronicle.Handle()

def sync(message):
    print("synced", message["id"], flush=True)
    return True

def work():
    endings.append(chronicle.run(url, queue, sync, schema="json", handle=handle))

before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
thread = threading.Thread(target=work)
thread.start()
try:
    while True:
        time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", thread.is_alive(), before == {n: signal.getsignal(n) for n in before}, flush=True)
handle.stop("the cell was interrupted")
thread.join()
print("ended", int(endings[0].code), endings[0].reason, flush=True)
"""

FOREGROUND: Final = """
import signal, sys
import chronicle

url, queue = sys.argv[1:]

def sync(message):
    print("synced", message["id"], flush=True)
    return True

before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
ending = chronicle.run(url, queue, sync, schema="json")
print("ended", int(ending.code), ending.reason, ending.counters.ack, flush=True)
print("restored", before == {n: signal.getsignal(n) for n in before}, flush=True)
"""


class Program:
    """A script that runs beside the test; its output goes to a file."""

    def __init__(self, folder: Path, text: str, *args: str) -> None:
        script = folder / "program.py"
        script.write_text(text)
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, script, *args], cwd=folder, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, words: str) -> None:
        def seen() -> bool:
            assert words in self.said or self.process.poll() is None, self.said
            return words in self.said

        wait_for(seen, PATIENCE, f"the words {words!r}")

    def interrupt(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)

    def end(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def begin(text: str, *args: str) -> Program:
        started.append(Program(tmp_path, text, *args))
        return started[-1]

    yield begin
    for program in started:
        program.process.kill()
        program.process.wait()


def filled(rabbit: Broker, messages: int) -> str:
    """A queue as `subscribe` declares it, with so many messages."""
    queue = rabbit.queues.name("program")
    declare(rabbit.url, queue, QueueOptions())
    with open_publisher(Connector(rabbit.url, queue)) as publisher:
        for first in range(0, messages, 500):
            batch = range(first, min(first + 500, messages))
            publisher.publish([Outgoing(b'{"id": %d}' % number) for number in batch])
    return queue


def test_ten_thousand_messages_and_kills_lose_nothing(
    rabbit: Broker, tmp_path: Path, start: Callable[..., Program]
) -> None:
    """F1: kill -9 of a program that subscribes; no more repeats than it could hold, per kill."""
    queue = filled(rabbit, 10_000)
    journal = tmp_path / "journal"

    def lines() -> int:
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    kills = 5
    for kill in range(1, kills + 1):
        program = start(JOURNAL, rabbit.url, queue)
        wait_for(lambda: lines() >= 1500 * kill, PATIENCE, f"{1500 * kill} messages", every=0.005)  # noqa: B023
        program.process.kill()
        program.end()
    last = start(JOURNAL, rabbit.url, queue, "until-empty")
    assert last.end() == 0, last.said
    handled = Counter(int(line) for line in journal.read_text().split())
    assert set(handled) == set(range(10_000))
    assert handled.total() - 10_000 <= kills * WINDOW
    assert rabbit.node.counts(queue) == (0, 0)
    assert rabbit.queues.depth(f"{queue}.dlq") == 0


def test_ctrl_c_in_a_notebook_s_cell_ends_the_loop_and_nothing_else(
    rabbit: Broker, start: Callable[..., Program]
) -> None:
    """D-11: KeyboardInterrupt, as everywhere in Python; the messages are back, and the next cell has them."""
    queue = filled(rabbit, 3)
    program = start(NOTEBOOK, rabbit.url, queue)
    program.wait_for("got 0")
    program.interrupt()
    assert program.end() == 0, program.said
    assert program.said.split("\n")[1:4] == ["interrupted True", "left []", "done"]
    assert rabbit.node.counts(queue) == (0, 0)
    assert rabbit.queues.depth(f"{queue}.dlq") == 0


def test_ctrl_c_beside_a_run_on_another_thread_is_the_program_s_own(
    rabbit: Broker, start: Callable[..., Program]
) -> None:
    """A run that is not on the main thread takes no signals; its handle stops it."""
    queue = filled(rabbit, 3)
    program = start(THREAD, rabbit.url, queue)
    program.wait_for("synced 2")
    program.interrupt()
    assert program.end() == 0, program.said
    assert "interrupted True True\n" in program.said
    assert "ended 0 the cell was interrupted\n" in program.said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_on_the_main_thread_a_signal_asks_for_a_drain(
    rabbit: Broker, start: Callable[..., Program], how: signal.Signals
) -> None:
    queue = filled(rabbit, 3)
    program = start(FOREGROUND, rabbit.url, queue)
    program.wait_for("synced 2")
    program.interrupt(how)
    assert program.end() == 0, program.said
    assert program.said.endswith(f"ended 0 {how.name} 3\nrestored True\n")
    assert rabbit.node.counts(queue) == (0, 0)
