"""The queue file locked by somebody else, or short of room: what waits, what is told, what goes on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import BrokerError, BrokerUnreachable
from chronicle.transports.local import schema
from chronicle.transports.local.consumer import PATROL, LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from conformance.harness import opened, settle, verdict
from support.waiting import wait_for


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def connector(file: Path) -> Connector:
    return Connector(f"local:{file}", "q")


def publish(file: Path, *messages: Outgoing) -> None:
    with LocalPublisher(connector(file)) as publisher:
        publisher.publish(messages)


@pytest.fixture
def transport(file: Path) -> Iterator[LocalTransport]:
    """Opened on a queue with three messages."""
    publish(file, *(Outgoing(b"%d" % number) for number in range(3)))
    transport = LocalTransport(connector(file))
    opened(transport)
    yield transport
    transport.close()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another process writes, and does not come to an end."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_lock_that_is_never_given_back_is_told_to_whoever_begins(
    file: Path, transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-9: it is worth trying again."""
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.1)
    with locked(file):
        with pytest.raises(BrokerError, match="locked by another process"):
            publish(file, Outgoing(b"x"))
        with pytest.raises(BrokerUnreachable, match="locked by another process"):
            opened(LocalTransport(connector(file)))


def test_a_locked_file_brings_nothing_and_loses_nothing(file: Path, transport: LocalTransport) -> None:
    """Verdicts wait, nothing is claimed meanwhile, and no turn waits as long as the lock lasts."""
    (held,) = transport.receive(1, 0)
    waiting = verdict(held, Action.ACK)
    with locked(file):
        begun = time.monotonic()
        assert transport.settle([waiting]) == []
        assert transport.receive(1, 0) == ()
        assert transport.is_empty() is False
        assert time.monotonic() - begun < schema.BUSY_SECONDS / 2
    assert not transport.receive(1, 0), "claimed before what waits was settled"
    assert wait_for(lambda: transport.settle(()), 60, "the verdict to be taken") == [waiting]
    assert waiting.fate is Fate.DONE
    assert [delivery.body for delivery in transport.receive(3, 5)] == [b"1", b"2"]


def test_a_lock_while_claiming_brings_nothing_this_time(file: Path, transport: LocalTransport) -> None:
    with locked(file):
        assert transport.receive(3, 0.3) == ()
    assert len(wait_for(lambda: transport.receive(3, 0.2), 60, "the messages", every=0)) == 3


def test_a_lock_while_the_dead_are_buried_is_no_loss(file: Path, transport: LocalTransport) -> None:
    with sqlite3.connect(file) as other:
        other.execute("UPDATE messages SET owner = '1-0123456789abcdef'")
    other.close()
    with locked(file):
        begun = time.monotonic()
        wait_for(lambda: not transport.receive(3, 0.1) and time.monotonic() > begun + PATROL, 60, "a patrol")
    assert len(wait_for(lambda: transport.receive(3, 0.2), 60, "the messages of the dead", every=0)) == 3


def test_D_11_what_waits_for_the_file_is_given_up_when_nobody_waits_any_longer(
    file: Path, transport: LocalTransport
) -> None:
    """A delivery that is left goes back as it came; its verdict came too late and is told as failed."""
    one, other = transport.receive(2, 0)
    late, kept, left = verdict(one, Action.ACK), verdict(other, Action.ACK), verdict(one, Action.LEAVE)
    with locked(file):
        assert transport.settle([late, kept]) == []
        assert transport.settle([left]) == [late, left]
    assert (late.fate, left.fate) == (Fate.FAILED, Fate.DONE)
    assert late.error
    assert wait_for(lambda: transport.settle(()), 60, "the other verdict") == [kept]
    opened(transport)
    assert [(d.body, d.redelivered) for d in transport.receive(3, 0)] == [(b"0", False), (b"2", False)]


def test_what_waits_for_the_file_is_free_again_after_a_close(file: Path, transport: LocalTransport) -> None:
    (held,) = transport.receive(1, 0)
    with locked(file):
        assert transport.settle([verdict(held, Action.ACK)]) == []
    opened(transport)
    assert len(transport.receive(3, 0)) == 3
    assert transport.settle(()) == []


def test_room_to_settle_is_kept_in_the_log(file: Path, transport: LocalTransport) -> None:
    """What opening has proved stays true: the room is taken, whoever fills the disk afterwards."""
    log = Path(f"{file}-wal")
    kept = log.stat().st_size
    assert kept > 64 * 4096
    for delivery in transport.receive(3, 0):
        settle(transport, verdict(delivery, Action.DEAD_LETTER))
    assert log.stat().st_size == kept


def test_an_idle_consumer_takes_no_lock(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another writes, an idle consumer looks and finds nothing, and is not in the way."""
    monkeypatch.setattr(schema, "BUSY_SECONDS", 0.1)
    publish(file)
    transport = LocalTransport(connector(file))
    opened(transport)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert not transport.receive(10, 0.3)
    other.execute("COMMIT")
    other.close()
    transport.close()


def test_the_room_that_is_kept_does_not_grow_with_every_opening_nor_without_end(file: Path) -> None:
    """A reader of dead letters holds up to 65535 messages, and many may be open beside each other."""
    publish(file, Outgoing(b"x"))
    readers = [LocalTransport(replace(connector(file), prefetch=65535)) for _ in range(3)]
    for reader in readers:
        opened(reader)
    assert Path(f"{file}-wal").stat().st_size < 5_000_000
    for reader in readers:
        reader.close()
