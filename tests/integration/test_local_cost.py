"""What a turn on the queue file costs in instructions of SQLite's machine: a long queue costs no more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from conformance.harness import opened, settle, verdict

pytestmark = pytest.mark.timed

FEW = 20
MANY = 20_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def publish(file: Path, *messages: Outgoing, queue: str = "q") -> None:
    with LocalPublisher(Connector(f"local:{file}", queue)) as publisher:
        publisher.publish(messages)


@contextmanager
def consumer(file: Path) -> Iterator[LocalTransport]:
    transport = LocalTransport(Connector(f"local:{file}", "q", prefetch=10))
    opened(transport)
    yield transport
    transport.close()


def steps_of(transport: LocalTransport, work: Callable[[], object]) -> int:
    """Instructions of SQLite's machine; no clock involved."""
    assert transport._store is not None
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    transport._store._db.set_progress_handler(count, 1)
    work()
    transport._store._db.set_progress_handler(None, 1)
    return steps


def costs(file: Path) -> dict[str, int]:
    """What everything costs that a turn of the pump may do, patrol included; a claim takes ten."""
    with consumer(file) as transport:
        return {
            "is empty": steps_of(transport, lambda: transport.is_empty()),
            "claim": steps_of(transport, lambda: claim(transport)),
            "turn": steps_of(transport, lambda: turn(transport)),
        }


def claim(transport: LocalTransport) -> None:
    assert len(transport.receive(10, 0)) == 10


def turn(transport: LocalTransport) -> None:
    transport._patrolled = 0.0
    (next_one,) = transport.receive(1, 0)
    assert settle(transport, verdict(next_one, Action.REQUEUE)) == [Fate.DONE]
    assert transport.is_empty() is False


def test_no_call_of_a_turn_costs_more_for_a_long_queue(file: Path) -> None:
    """The seam: `is_empty` is no dearer for a long queue; nor is any other call."""
    publish(file, *[Outgoing(b"x")] * FEW)
    few = costs(file)
    publish(file, *[Outgoing(b"x")] * MANY)
    many = costs(file)
    assert all(many[name] <= few[name] * 1.5 for name in few), (few, many)


def test_a_queue_is_asked_for_its_first_message_and_not_for_their_number(file: Path) -> None:
    """`--until-empty` asks at every quiet turn."""
    publish(file, *[Outgoing(b"x")] * MANY)
    with consumer(file) as transport:
        assert steps_of(transport, lambda: transport.is_empty()) < 100


def test_a_claim_costs_the_same_whatever_waits(file: Path) -> None:
    """Dead-lettered, kept back, held, waiting: none of them is walked over, older or younger."""
    publish(file, *[Outgoing(b"x")] * FEW)
    few = costs(file)
    crowd = [Outgoing(b"x")] * 3000
    with sqlite3.connect(file) as other:
        other.execute("DELETE FROM messages")
    publish(file, *crowd, queue="q.dlq")
    publish(file, *crowd)
    with sqlite3.connect(file) as other:
        other.execute("UPDATE messages SET available_at = 1e15 WHERE queue = 1 AND id % 2 = 0")
    other.close()
    with consumer(file) as holder:
        assert len(holder.receive(1500, 0)) == 1500
        publish(file, *crowd)
        publish(file, *crowd, queue="q.dlq")
        assert costs(file)["claim"] <= few["claim"] * 1.2
