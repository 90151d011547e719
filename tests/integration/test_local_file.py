"""The queue file: who may read it, what is refused, what is told, and what is kept with a message."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chronicle.core.outcome import Action, Verdict
from chronicle.core.policy import grown
from chronicle.core.settlement import Fate
from chronicle.errors import BrokerRefused, ClientFailed, ConnectionLost, SettingError
from chronicle.transports.local import consumer, schema
from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from conformance.harness import opened, settle, verdict
from support.waiting import wait_for


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def connector(file: Path, queue: str = "q") -> Connector:
    return Connector(f"local:{file}", queue)


def publish(file: Path, *messages: Outgoing, queue: str = "q") -> None:
    with LocalPublisher(connector(file, queue)) as publisher:
        publisher.publish(messages)


@pytest.fixture
def transport(file: Path) -> Iterator[LocalTransport]:
    """Opened on a queue with three messages."""
    publish(file, *(Outgoing(b"%d" % number) for number in range(3)))
    transport = LocalTransport(connector(file))
    opened(transport)
    yield transport
    transport.close()


def refused(file: Path, queue: str = "q") -> BrokerRefused:
    transport = LocalTransport(connector(file, queue))
    with pytest.raises(BrokerRefused) as told:
        opened(transport)
    assert told.value.remedy
    assert "sqlite" not in told.value.problem.lower()
    assert not Path(f"{file}-owners").exists()
    return told.value


# --- the file ---------------------------------------------------------------------------------------


def test_only_its_owner_can_read_the_file(file: Path, transport: LocalTransport) -> None:
    """The bodies are personal data."""
    transport.receive(1, 0)
    for name in os.listdir(file.parent):
        assert (file.parent / name).stat().st_mode & 0o077 == 0, name
    assert {path.name for path in file.parent.iterdir()} == {
        "queue.db", "queue.db-wal", "queue.db-shm", "queue.db-owners",
    }  # fmt: skip


def test_a_close_leaves_nothing_but_the_file(file: Path, transport: LocalTransport) -> None:
    transport.receive(1, 0)
    transport.close()
    assert os.listdir(file.parent) == ["queue.db"]


def test_a_missing_file_is_refused_and_none_is_made(file: Path) -> None:
    """D-9."""
    told = refused(file)
    assert "queue.db" in told.problem
    assert "chronicle publish" in told.remedy
    assert not os.listdir(file.parent)


def test_an_unknown_queue_names_those_there_are(file: Path) -> None:
    """D-9."""
    publish(file, queue="orders")
    publish(file, queue="letters")
    told = refused(file, "order")
    assert "'letters', 'orders'" in told.problem
    assert "chronicle publish" in told.remedy


def test_a_foreign_database_is_refused_and_left_as_it_is(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE messages (id)")
    other.commit()
    other.close()
    before = file.read_bytes()
    assert "not a chronicle queue file" in refused(file).problem
    with pytest.raises(BrokerRefused), LocalPublisher(connector(file)):
        pass
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["queue.db"]


@pytest.mark.parametrize("content", [b"", b"some letter to a friend\n" * 100], ids=["empty", "text"])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "not a chronicle queue file" in refused(file).problem
    with pytest.raises(BrokerRefused), LocalPublisher(connector(file)):
        pass
    assert file.read_bytes() == content


def test_a_newer_file_is_refused_and_left_as_it_is(file: Path) -> None:
    publish(file, Outgoing(b"kept"))
    other = sqlite3.connect(file)
    other.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    other.close()
    before = file.read_bytes()
    assert "newer chronicle" in refused(file).problem
    assert file.read_bytes() == before


def test_a_damaged_file_is_told(file: Path) -> None:
    publish(file, *(Outgoing(b"x" * 500) for _ in range(200)))
    size = file.stat().st_size
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(os.urandom(size - 4096))
    assert "damaged" in refused(file).problem


def test_a_folder_is_not_a_file(file: Path) -> None:
    file.mkdir()
    assert "cannot be opened" in refused(file).problem


@pytest.mark.parametrize("url", ["local:", "local://host/queue.db", "local:a\0b"])
def test_a_url_without_a_file_is_refused(url: str) -> None:
    for make in (LocalTransport, LocalPublisher):
        with pytest.raises(SettingError, match="names one file"):
            make(Connector(url, "q"))


NAMES = {"file": b"\xff.db", "folder": b"\xff/q.db", "signs": "ü?#%41.db".encode()}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_file_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    """Names of files are bytes, and need be no text."""
    file = tmp_path / os.fsdecode(name)
    file.parent.mkdir(exist_ok=True)
    publish(file, Outgoing(b"kept"))
    transport = LocalTransport(connector(file))
    assert [delivery.body for delivery in opened(transport).receive(1, 0)] == [b"kept"]
    transport.close()
    assert os.listdir(os.fsencode(file.parent)) == [os.path.basename(name)]


def test_a_missing_folder_is_refused(file: Path) -> None:
    for make in (LocalTransport, LocalPublisher):
        with pytest.raises(SettingError, match="folder") as told:
            make(connector(file.parent / "nowhere" / "queue.db"))
        assert "mkdir" in told.value.remedy


def test_a_file_that_may_not_be_written_is_refused() -> None:
    """Root may write anything, so root tries it as somebody else."""
    folder = Path(tempfile.mkdtemp())
    file = folder / "queue.db"
    nobody = 65534
    root = os.geteuid() == 0
    publish(file, Outgoing(b"x"))
    try:
        file.chmod(0o444)
        folder.chmod(0o777)
        if root:
            os.seteuid(nobody)
        assert "cannot be written" in refused(file).problem
        with pytest.raises(BrokerRefused, match="cannot be written"), LocalPublisher(connector(file)):
            pass
        if root:
            os.seteuid(0)
        folder.chmod(0o555)
        if root:
            os.seteuid(nobody)
        assert refused(file)
        with pytest.raises(BrokerRefused, match="cannot be created"):
            publish(folder / "other.db")
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


@pytest.fixture
def as_somebody() -> Iterator[Path]:
    """A folder of a user whom file modes stop; root may open anything, so root is somebody else meanwhile."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_holder_whose_lock_may_not_be_opened_counts_as_alive(
    as_somebody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process may be at work. A start, the patrol and everything else go on, and it is told once."""
    monkeypatch.setattr(consumer, "PATROL", 0.0)
    file = as_somebody / "queue.db"
    publish(file, *(Outgoing(b"%d" % number) for number in range(3)))
    theirs, ours = LocalTransport(connector(file)), LocalTransport(connector(file))
    assert len(opened(theirs).receive(1, 0)) == 1
    (lock,) = Path(f"{file}-owners").iterdir()
    lock.chmod(0)
    opened(ours)
    assert [delivery.body for delivery in ours.receive(3, 0)] == [b"1", b"2"]
    assert ours.receive(3, 0) == ()
    (told,) = ours.notices
    assert (told.event, told.facts["holder"]) == ("queue.stranger", lock.name)
    lock.chmod(0o600)
    theirs.close()
    assert [delivery.body for delivery in ours.receive(3, 0)] == [b"0"]
    ours.close()


# --- what goes wrong while it is open -----------------------------------------------------------------


def test_a_removed_file_is_told_and_not_waited_on(file: Path, transport: LocalTransport) -> None:
    """A consumer on a file without a name would wait for ever."""
    file.unlink()
    with pytest.raises(ConnectionLost, match="removed or replaced"):
        wait_for(lambda: transport.receive(0, 0.1), 60, "the loss to be told", every=0)


def test_damage_is_told_with_a_remedy_and_not_waited_on(file: Path) -> None:
    """Opening the file again would not mend it, so no reconnect is asked for."""
    publish(file, *(Outgoing(b"x" * 500) for _ in range(200)))
    transport = LocalTransport(connector(file))
    opened(transport)
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(os.urandom(file.stat().st_size - 4096))
    with pytest.raises(ClientFailed, match="damaged") as told:
        transport.receive(200, 0)
    assert told.value.remedy
    transport.close()


def test_nothing_is_confirmed_that_went_to_a_removed_file(file: Path) -> None:
    with LocalPublisher(connector(file)) as publisher:
        publisher.publish([Outgoing(b"1")])
        file.unlink()
        with pytest.raises(ConnectionLost):
            publisher.publish([Outgoing(b"2")])


# --- what is kept with a message ----------------------------------------------------------------------


def test_headers_survive_and_a_dead_letter_tells_its_story(file: Path) -> None:
    """D-14, D-21: lossless headers; reason, attempts, queue and time beside them, not inside them."""
    headers = {"n": 1, "raw": b"\xff", "when": datetime(2026, 3, 2, tzinfo=UTC), "$odd": [None, 2**70]}
    properties = {"content_type": "application/json"}
    publish(file, Outgoing(b"body", headers, properties))
    now = 1_700_000_000.0
    transport = LocalTransport(connector(file), clock=lambda: now)
    opened(transport)
    (first,) = transport.receive(1, 0)
    assert (first.headers, first.properties) == (headers, properties)
    assert first.timestamp is not None
    settle(transport, verdict(first, Action.REQUEUE))
    (second,) = transport.receive(1, 0)
    settle(transport, verdict(second, Action.DEAD_LETTER))
    transport.close()
    dead = LocalTransport(connector(file, "q.dlq"))
    assert not opened(dead).is_empty()
    (letter,) = dead.receive(1, 0)
    story = {
        "x-chronicle-queue": "q",
        "x-chronicle-reason": "for the test",
        "x-chronicle-attempts": 2,
        "x-chronicle-consumer": "chronicle",
        "x-chronicle-first-failed-at": int(now * 1000),
        "x-chronicle-last-failed-at": int(now * 1000),
    }
    assert letter.headers == headers | story
    assert (letter.body, letter.properties) == (b"body", properties)
    assert letter.timestamp == first.timestamp
    assert (letter.redelivered, letter.counted) == (False, 0)
    dead.close()


def test_a_message_interrupted_by_a_clean_close_is_as_it_was(transport: LocalTransport) -> None:
    """D-11: no attempt is burnt."""
    transport.receive(3, 0)
    transport.close()
    opened(transport)
    assert [(d.body, d.redelivered, d.counted) for d in transport.receive(3, 0)] == [
        (b"0", False, 0), (b"1", False, 0), (b"2", False, 0),
    ]  # fmt: skip


def test_nothing_is_kept_of_a_message_that_is_done(file: Path, transport: LocalTransport) -> None:
    """Bodies are personal data: they go with their messages, and only with them."""
    one, other, _ = transport.receive(3, 0)
    settle(transport, verdict(one, Action.ACK), verdict(other, Action.DROP))
    transport.close()
    look = sqlite3.connect(file)
    assert look.execute("SELECT body FROM contents").fetchall() == [(b"2",)]
    look.close()


def test_a_verdict_about_an_earlier_try_is_stale(transport: LocalTransport) -> None:
    """One verdict for one try, even when the next try is in the same hands."""
    (first, *_) = transport.receive(1, 0)
    settle(transport, verdict(first, Action.REQUEUE))
    (second, *_) = transport.receive(1, 0)
    assert second.body == first.body
    assert settle(transport, verdict(first, Action.ACK)) == [Fate.STALE]
    twice = (verdict(second, Action.ACK), verdict(second, Action.DEAD_LETTER))
    assert settle(transport, *twice) == [Fate.DONE, Fate.STALE]


def test_a_growing_delay_is_kept_and_never_a_hot_loop(file: Path) -> None:
    """D-1: requeue without a number."""
    publish(file, Outgoing(b"x"))
    now = 1000.0
    transport = LocalTransport(connector(file), clock=lambda: now)
    opened(transport)
    waits = []
    for _ in range(3):
        (delivery,) = transport.receive(1, 0)
        again = verdict(delivery, Action.REQUEUE)
        again.verdict = grown(Verdict(Action.REQUEUE, "again", None), delivery.attempts)
        settle(transport, again)
        before = now
        while not (back := transport.receive(1, 0)):
            now += 0.05
        waits.append(now - before)
        settle(transport, verdict(back[0], Action.REQUEUE))
    assert waits == sorted(waits)
    assert waits[0] > 0.2
    transport.close()
