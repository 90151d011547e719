"""The queue file locked by somebody else, or on a full disk, while the real command works on it (D-6, D-11).

A disk is full here when the process may not make a file longer than so many bytes: its next write to the
write-ahead log fails as on a full disk, the log and the journal are shorter than that.
"""

from __future__ import annotations

import resource
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.checker import Campaign, InFile, NewCampaign
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.waiting import wait_for

pytestmark = pytest.mark.timed

TOGETHER = ("--concurrency", "5", "--prefetch", "5")
BUSY = 5.0  # as long as a process waits for a lock that it needs to begin
NO_ROOM = 64 * 1024


@pytest.fixture
def campaign(in_file: NewCampaign) -> Campaign:
    return in_file("stalled")


@contextmanager
def locked(campaign: Campaign) -> Iterator[None]:
    """Somebody else writes and does not come to an end."""
    assert isinstance(campaign.place, InFile)
    with closing(sqlite3.connect(campaign.place.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def limit(process: ChronicleProcess, longest: int | None) -> None:
    """No file of this process may become longer; None: any may."""
    _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most if longest is None else longest, most))


def at_work(campaign: Campaign, start: StartChronicle, gate: Path, *options: str) -> ChronicleProcess:
    """A process that has done forty messages, so its log is long, and holds five at the gate."""
    campaign.send(40)
    campaign.send(5, gate=str(gate))
    process = campaign.consume(start, *TOGETHER, *options)
    campaign.wait_started(45)
    return process


def test_D_6_a_lock_longer_than_anybody_waits_is_no_lost_connection(
    campaign: Campaign, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """Verdicts wait for the file: nothing is thrown away, started meanwhile, or synced twice."""
    gate = tmp_path / "gate"
    process = at_work(campaign, chronicle, gate, "--until-empty")
    campaign.send(3)
    with locked(campaign):
        begun = time.monotonic()
        gate.touch()
        campaign.wait_ended(45)
        busy = process.wait_for_line("queue.busy")
        wait_for(lambda: time.monotonic() > begun + BUSY + 1.5, 30, "the lock to last")
        assert set(campaign.started()) == set(range(45)), "started what could not be settled"
    assert process.wait() == 0
    assert set(campaign.started().values()) == {1}
    assert (busy["level"], busy["unsettled"]) == ("warning", 5)
    assert "locked by another process" in busy["text"]
    assert len(process.lines("queue.busy")) == len(process.lines("queue.writable")) == 1
    assert process.lines("queue.writable")[0]["after_ms"] > 4000
    assert not process.lines("connection.lost")
    assert process.lines("consumer.stopped")[0]["ack"] == 48
    assert campaign.report().queued == ()


def test_D_11_a_stop_is_obeyed_while_the_file_is_locked(
    campaign: Campaign, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """At the drain's deadline what could not be settled is left, told, and comes again: at least once."""
    gate = tmp_path / "gate"
    process = at_work(campaign, chronicle, gate, "--drain-timeout", "1s")
    with locked(campaign):
        gate.touch()
        process.wait_for_line("queue.busy")
        process.signal(signal.SIGTERM)
        begun = time.monotonic()
        assert process.wait() == 4
        assert time.monotonic() - begun < BUSY, "the lock was waited for beyond the deadline"
    assert process.lines("consumer.stopped")[0]["unfinished"] == 5
    assert len(process.lines("message.settle_failed")) == len(process.lines("message.left")) == 5
    assert campaign.consume(chronicle, "--until-empty").wait() == 0
    assert Counter(campaign.started().values()) == {1: 40, 2: 5}


def test_D_6_a_full_disk_is_waited_out_and_nothing_is_synced_twice(
    campaign: Campaign, chronicle: StartChronicle, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    process = at_work(campaign, chronicle, gate, "--until-empty")
    campaign.send(3)
    limit(process, NO_ROOM)
    gate.touch()
    full = process.wait_for_line("queue.full")
    begun = time.monotonic()
    wait_for(lambda: time.monotonic() > begun + 3, 30, "some tries more")
    assert set(campaign.started()) == set(range(45)), "started what could not be settled"
    assert process.running
    limit(process, None)
    assert process.wait() == 0
    assert set(campaign.started().values()) == {1}
    assert full["level"] == "error"
    assert "free some space" in full["text"]
    assert len(process.lines("queue.full")) == len(process.lines("queue.writable")) == 1
    assert process.lines("queue.writable")[0]["tries"] < 20, "the delay between tries does not grow"
    assert not process.lines("connection.lost")
    assert process.lines("consumer.stopped")[0]["ack"] == 48


def test_D_9_nothing_is_started_on_a_disk_that_has_no_room_to_settle_it(
    campaign: Campaign, chronicle: StartChronicle
) -> None:
    """Room for a claim is not room for its verdict; so the room is seen to before the first claim."""
    campaign.send(5)
    process = campaign.consume(chronicle, *TOGETHER, "--startup-timeout", "4s", "--log-level", "warning")
    limit(process, NO_ROOM // 2)
    assert process.wait() == 3
    assert "disk is full" in process.stderr
    assert not campaign.started()
    assert campaign.consume(chronicle, "--until-empty").wait() == 0
    assert set(campaign.started().values()) == {1}
