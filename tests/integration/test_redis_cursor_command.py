"""`chronicle consume --no-group`: restarts, signals and kills."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.telemetry import events
from support import journal
from support.cursor_reader import PATIENCE, Reader
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for


@pytest.fixture
def streams(redis_server: RedisServer) -> Streams:
    return redis_server.streams


@pytest.fixture
def reader(redis_server: RedisServer) -> Iterator[Reader]:
    made = Reader.of(redis_server)
    yield made
    made.close()
    redis_server.streams.clear()


SYNCERS: Final = str(Path(journal.__file__))


class TestCommand:
    def start(
        self, chronicle: StartChronicle, reader: Reader, folder: Path, *options: str
    ) -> ChronicleProcess:
        where = ("--url", reader.url, "--queue", reader.stream, "--no-group")
        what = ("--syncer", f"{SYNCERS}:sync", "--schema", "json", "--log-format", "json", *options)
        return chronicle("consume", *where, *what, env={journal.JOURNAL: str(folder / "journal")})

    @staticmethod
    def handled(folder: Path) -> list[int]:
        file = folder / "journal"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [int(number) for word, number, *_ in lines if word == "end"]

    def wait_for_more(self, folder: Path, than: int) -> None:
        wait_for(lambda: len(self.handled(folder)) > than, PATIENCE, f"more than {than}")

    @staticmethod
    def message(number: int, **more: Any) -> bytes:
        return json.dumps({"id": number, **more}).encode()

    def test_a_restart_goes_on_exactly_where_it_was(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        for begin in (0, 50, 100):
            streams.publish(reader.stream, *(self.message(number) for number in range(begin, begin + 50)))
            process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--until-empty")
            assert process.wait(PATIENCE) == 0, process.stderr
            assert self.handled(tmp_path) == list(range(begin + 50))
        (stopped,) = process.lines(events.STOPPED)
        assert (stopped["received"], stopped["stream"], stopped["mode"]) == (50, reader.stream, "stream")

    def test_a_signal_leaves_nothing_to_be_done_twice(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        """F2."""
        total = 200
        streams.publish(reader.stream, *(self.message(number, seconds=0.01) for number in range(total)))
        for _ in range(3):
            process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--concurrency", "4")
            before = len(self.handled(tmp_path))
            self.wait_for_more(tmp_path, before + 10)
            process.signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, process.stderr
        process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--until-empty")
        assert process.wait(PATIENCE) == 0, process.stderr
        assert sorted(self.handled(tmp_path)) == list(range(total))

    def test_F1_kill_9_loses_nothing(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        """Repeats are at most what was held, and what the position did not say yet."""
        total, kills, prefetch = 600, 6, 8

        def publish() -> None:
            for number in range(total):
                streams.publish(reader.stream, self.message(number, seconds=0.005))

        publisher = threading.Thread(target=publish)
        publisher.start()
        options = ("--cursor", reader.key, "--concurrency", "4", "--prefetch", str(prefetch))
        for _ in range(kills):
            before = len(self.handled(tmp_path))
            process = self.start(chronicle, reader, tmp_path, *options)
            self.wait_for_more(tmp_path, before + 30)
            process.kill()
        publisher.join()
        process = self.start(chronicle, reader, tmp_path, *options, "--until-empty")
        assert process.wait(PATIENCE) == 0, process.stderr
        handled = self.handled(tmp_path)
        assert set(handled) == set(range(total))
        assert len(handled) - total <= kills * 2 * prefetch

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            (("--on-failure", "retry:3"), "others read that too"),
            (("--claim-idle", "5s"), "--claim-idle"),
            (("--group", "g"), "--group"),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_what_means_nothing_here_is_refused(
        self,
        reader: Reader,
        chronicle: StartChronicle,
        tmp_path: Path,
        options: tuple[str, ...],
        word: str,
    ) -> None:
        process = self.start(chronicle, reader, tmp_path, *options)
        assert process.wait(PATIENCE) == 2, process.stderr
        assert word in process.stderr
