"""The embedded queue among real processes: killed, stopped, side by side, and out of space (F1, F12)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from conformance.harness import opened, settle, verdict
from support.waiting import wait_for

CHILD = Path(__file__).parent.parent / "support" / "local_child.py"
PATIENCE = 60.0

Child = subprocess.Popen[str]
Start = Callable[..., Child]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local:{tmp_path / 'queue.db'}"


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    children: list[Child] = []

    def run(mode: str, argument: object) -> Child:
        command = [sys.executable, str(CHILD), mode, url, "q", str(argument)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield run
    for child in children:
        end(child)


def end(child: Child) -> None:
    child.kill()
    child.communicate()


def heard(child: Child) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "the child ended"
    return line.strip()


def tell(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def publish(url: str, bodies: list[bytes], queue: str = "q") -> None:
    with LocalPublisher(Connector(url, queue)) as publisher:
        publisher.publish([Outgoing(body) for body in bodies])


def consumer(url: str, queue: str = "q") -> LocalTransport:
    transport = LocalTransport(Connector(url, queue))
    opened(transport)
    return transport


def drained(url: str) -> list[Delivery]:
    """Everything left on the queue, acknowledged."""
    transport, taken = consumer(url), list[Delivery]()
    while not transport.is_empty() or not taken:
        batch = transport.receive(500, 0.2)
        if not batch:
            break
        assert set(settle(transport, *(verdict(d, Action.ACK) for d in batch))) == {Fate.DONE}
        taken += batch
    transport.close()
    return taken


def logged(log: Path, word: bytes = b"done") -> list[bytes]:
    """What a child has logged with this word, in whole lines."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [body for body, said in lines if said == word]


def wait_for_lines(log: Path, word: bytes, more: int) -> None:
    goal = len(logged(log, word)) + more
    wait_for(lambda: len(logged(log, word)) >= goal, PATIENCE, f"{more} more lines", every=0.002)


def test_thirty_kills_lose_nothing(url: str, start: Start, tmp_path: Path) -> None:
    """F1: a consumer killed at any point; what it had settled stays settled, what it held comes back."""
    log = tmp_path / "log"
    luck = random.Random(7)
    sent = [b"%d" % number for number in range(20_000)]
    publish(url, sent)
    for _ in range(30):
        child = start("drain", log)
        assert heard(child) == "ready"
        tell(child)
        wait_for_lines(log, b"done", luck.randint(1, 40))
        end(child)
    begun, done = logged(log, b"begun"), logged(log, b"done")
    left = [delivery.body for delivery in drained(url)]
    assert left, "the test wants something left to find"
    assert set(sent) == set(begun) | set(left), "lost"
    assert not set(done) & set(left), "settled, and yet delivered again"
    assert len(done) == len(set(done))
    assert len(left) == len(set(left))
    assert not list(tmp_path.glob("*-owners")), "the dead left their lock files"


def test_a_message_that_was_held_by_a_killed_process_comes_back(url: str, start: Start) -> None:
    """Counted by ids, thirty times: held, killed, and every one of them redelivered."""
    sent = [b"%d" % number for number in range(5)]
    publish(url, sent)
    for killed in range(1, 31):
        child = start("hold", len(sent))
        assert heard(child).split() == [body.decode() for body in sent]
        end(child)
        transport = consumer(url)
        batch = transport.receive(10, 0)
        transport.close()
        assert [delivery.body for delivery in batch] == sent
        assert all(delivery.redelivered and delivery.counted == killed for delivery in batch)


def test_a_running_consumer_finds_what_another_left(url: str, start: Start) -> None:
    """Recovery needs no restart: the patrol of whoever is alive does it."""
    publish(url, [b"1", b"2"])
    child = start("hold", 2)
    heard(child)
    transport = consumer(url)
    assert not transport.receive(10, 0)
    end(child)
    got = wait_for(lambda: transport.receive(10, 0.2), PATIENCE, "the dead one's messages", every=0)
    assert [delivery.body for delivery in got] == [b"1", b"2"]
    transport.close()


def test_a_stopped_holder_is_not_robbed(url: str, start: Start) -> None:
    """F12: a frozen process is alive; its verdicts count when it thaws."""
    publish(url, [b"1", b"2", b"3"])
    child = start("hold", 3)
    heard(child)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    transport = consumer(url)
    for _ in range(3):
        assert not transport.receive(10, 0)
        opened(transport)  # every opening looks for the dead
    child.send_signal(signal.SIGCONT)
    tell(child)
    assert heard(child) == "done done done"
    assert transport.is_empty()
    transport.close()


def test_two_processes_drain_two_thousand_without_overlap(url: str, start: Start, tmp_path: Path) -> None:
    """R-001-45: consumers share."""
    sent = [b"%d" % number for number in range(2000)]
    publish(url, sent)
    logs = [tmp_path / "one", tmp_path / "two"]
    children = [start("drain", log) for log in logs]
    for child in children:
        assert heard(child) == "ready"
    for child in children:
        tell(child)
    for child in children:
        assert heard(child) == "empty"
    handled = [body for log in logs for body in logged(log)]
    assert sorted(handled) == sorted(sent)
    assert not any(b"stale" in log.read_bytes() for log in logs)


def test_a_killed_publisher_has_published_what_was_confirmed(url: str, start: Start, tmp_path: Path) -> None:
    """Eight kills: every confirmed message is there, once."""
    log = tmp_path / "log"
    publish(url, [])
    for _ in range(8):
        child = start("publish", log)
        wait_for_lines(log, b"confirmed", 5)
        end(child)
    there = Counter(delivery.body for delivery in drained(url))
    assert not set(logged(log, b"confirmed")) - set(there)
    assert max(there.values()) == 1


def test_a_full_disk_is_told_and_costs_nothing_that_was_confirmed(url: str, start: Start) -> None:
    child = start("fill", 2_000_000)
    number, _, problem = heard(child).partition(" ")
    assert int(number) > 0
    assert "queue.db" in problem
    assert "disk" in problem
    assert "sqlite" not in problem.lower()
    end(child)
    assert [int(delivery.body.split()[0]) for delivery in drained(url)] == list(range(int(number)))


def test_a_forked_child_does_not_keep_its_parent_alive(url: str) -> None:
    """A syncer may fork; a lock must die with the process that holds the messages."""
    publish(url, [b"1"])
    transport = consumer(url)
    assert transport.receive(1, 0)
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        kill_in_place(transport)
        other = consumer(url)
        # The child lets go as soon as it runs, which a busy machine may put off.
        found = wait_for(lambda: other.receive(1, 0.1), 30, "the message of the killed process")
        assert [delivery.body for delivery in found] == [b"1"]
        other.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def kill_in_place(transport: LocalTransport) -> None:
    """What the kernel does to a killed process: connection and lock are gone, nothing is tidied up."""
    assert transport._store is not None
    assert transport._owner is not None
    transport._store.close()
    transport._owner.drop()
    transport._store = transport._owner = None
