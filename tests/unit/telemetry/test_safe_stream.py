"""X7: a reader that stalls costs lines, which are counted and told of; never a wait, never a torn line."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from chronicle.telemetry import events, safe_stream, way_out
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.formats import JsonLog
from chronicle.telemetry.safe_stream import MOST_KEPT, PATIENCE, SafeStream
from support.stalled import KINDS, Stalled, stalled_reader

NUMBERED = b'{"line": %d, "text": "' + b"x" * 300 + b'"}\n'


@pytest.fixture(params=["opened again", "shared"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways out: with an opening of our own, and where the system refuses one."""

    def refuse(fd: int) -> int:
        raise PermissionError(fd)

    if request.param == "shared":
        monkeypatch.setattr(way_out, "_opened_again", refuse)


@pytest.fixture(params=KINDS)
def stalled(request: pytest.FixtureRequest) -> Iterator[Stalled]:
    with stalled_reader(request.param) as made:
        yield made


@pytest.fixture
def stream(stalled: Stalled) -> Iterator[TextIO]:
    with os.fdopen(stalled.writing, "w", closefd=False) as made:
        yield made


def overflow(sink: SafeStream, first: int = 0) -> int:
    """Write numbered lines until some are dropped; the next number."""
    number = first
    while not sink.dropped:
        sink.write(b"".join(NUMBERED % n for n in range(number, number + 20)))
        number += 20
    return number


def read_all(sink: SafeStream, stalled: Stalled) -> bytes:
    """The reader is back, and takes everything."""
    read = b""
    while sink.is_behind:
        read += stalled.read()
        sink.take_untold()
    return read + stalled.read(quiet=1.0)


def numbers(text: bytes) -> list[int]:
    """Every line that was read; one that is torn would be no JSON."""
    assert text.endswith(b"\n")
    return [json.loads(line)["line"] for line in text.splitlines()]


@pytest.mark.usefixtures("opening")
def test_what_the_reader_did_not_take_is_kept_or_counted_and_no_line_is_torn(
    stalled: Stalled, stream: TextIO
) -> None:
    sink = SafeStream(stream)
    written = overflow(sink)
    assert sink.take_untold() == 0  # nobody is there to be told
    read = read_all(sink, stalled)
    sink.write(NUMBERED % written)
    found = numbers(read + stalled.read(quiet=1.0))
    assert found == [*range(written - sink.dropped), written]


@pytest.mark.timed
@pytest.mark.usefixtures("opening")
def test_a_stalled_reader_is_waited_for_once(stalled: Stalled, stream: TextIO) -> None:
    """Once for a moment, when no more can be kept; not again while it takes nothing."""
    sink = SafeStream(stream)
    number = overflow(sink)
    waits: list[float] = []
    for _ in range(50):
        before = time.monotonic()
        sink.write(NUMBERED % number)
        waits.append(time.monotonic() - before)
    assert sum(waits) < PATIENCE
    assert stalled.reading


@pytest.mark.usefixtures("opening")
def test_a_little_room_is_not_taken_for_enough() -> None:
    """X7: a terminal that says it is ready may have room for one line, and blocks for the next."""
    with stalled_reader("terminal") as stalled, os.fdopen(stalled.writing, "w", closefd=False) as stream:
        sink = SafeStream(stream)
        stalled.leave_room(20)
        writing = threading.Thread(target=sink.write, args=(b"y\n" * 64,), daemon=True)
        writing.start()
        writing.join(10)
        assert not writing.is_alive()
        assert sink.is_behind
        assert read_all(sink, stalled).endswith(b"y\r\n" * 64)


def test_a_line_tells_how_many_were_lost_when_the_reader_is_back(stalled: Stalled, stream: TextIO) -> None:
    sink = SafeStream(stream)
    log = JsonLog(sink, logging.INFO, {})
    overflow(sink)
    lost = sink.dropped
    read = b""
    while sink.is_behind:
        read += stalled.read()
        log.tick(Counters())
    read += stalled.read(quiet=1.0)  # a terminal hands on a moment later what it has taken
    log.tick(Counters())
    log.close(Counters())
    read += stalled.read(quiet=1.0)
    told = [line for line in map(json.loads, read.splitlines()) if "event" in line]
    assert [line["event"] for line in told] == [events.LINES_DROPPED] * 2  # when it was back, and at the end
    assert [line["lines"] for line in told] == [lost, lost]


def test_a_slow_reader_is_waited_for_and_loses_nothing(
    stalled: Stalled, stream: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_stream, "PATIENCE", 30.0)
    sink = SafeStream(stream)
    number = 0
    while not sink.is_full:
        sink.write(NUMBERED % number)
        number += 1
    read: list[bytes] = []
    reader = threading.Timer(0.2, lambda: read.append(stalled.read(quiet=0.5)))
    reader.start()
    sink.write(NUMBERED % number)
    sink.finish()
    reader.join(30)
    assert (sink.dropped, sink.is_behind) == (0, False)
    assert numbers(b"".join(read)) == list(range(number + 1))


def test_no_flag_of_a_shared_terminal_or_pipe_is_changed(stalled: Stalled, stream: TextIO) -> None:
    """O_NONBLOCK would reach the shell, too."""
    sink = SafeStream(stream)
    overflow(sink)
    assert os.get_blocking(stalled.writing)


def test_a_socket_nobody_reads_costs_lines_only() -> None:
    """What a service's stderr is under systemd."""
    ours, theirs = socket.socketpair()
    with ours, theirs, os.fdopen(ours.fileno(), "w", closefd=False) as stream:
        sink = SafeStream(stream)
        overflow(sink)
        assert sink.dropped


def test_a_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    count = 4 * MOST_KEPT // len(NUMBERED)
    with path.open("w") as stream:
        sink = SafeStream(stream)
        sink.write(b"".join(NUMBERED % n for n in range(count)))
        sink.write(NUMBERED % count)
        assert (sink.dropped, sink.is_behind) == (0, False)
    assert numbers(path.read_bytes()) == list(range(count + 1))


def test_a_line_torn_by_an_error_is_ended_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk took a part of a line, and has room again."""
    path = tmp_path / "log"
    room = [10]

    def write(fd: int, data: bytearray) -> int:
        if not room:
            return real(fd, data)
        if not room[0]:
            raise OSError(28, "no space")
        taken = real(fd, bytes(data[: room[0]]))
        room[0] = 0
        return taken

    real = os.write
    with path.open("w") as stream:
        sink = SafeStream(stream)
        monkeypatch.setattr(os, "write", write)
        sink.write(b"first line\nsecond line\n"[1:])
        sink.write(b"third line\n")
        assert sink.dropped == 2
        room.clear()
        sink.write(b"fourth line\n")
        monkeypatch.undo()
    assert path.read_bytes() == b"irst line\nfourth line\n"


def test_a_reader_that_is_gone_is_not_told_what_it_missed() -> None:
    """Each such line would be one more that is lost."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        sink = SafeStream(stream)
        log = JsonLog(sink, logging.INFO, {})
        os.close(reading)
        log.event(events.READY, logging.INFO, "consuming")
        for _ in range(5):
            log.tick(Counters())
        assert sink.dropped == 1


def test_patience_is_shorter_than_the_pump_may_stand_still() -> None:
    """RB5: a wait for a reader must not look like a borrower who does not answer."""
    from chronicle.workers.pump_loan import STUCK

    assert safe_stream.PATIENCE < STUCK
