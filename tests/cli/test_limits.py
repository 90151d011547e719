"""`--time-limit`, `--rate` and `--brake` as an operator uses them, on the embedded queue."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.stage import PATIENCE, counted, stopped
from support.waiting import wait_for

CANARY: Final = "zofia.canary@example.org"
SYNCERS: Final = '''
import asyncio, time
from pathlib import Path

def called(message):
    with open("calls", "a") as calls:
        calls.write(f"{time.monotonic()} {message['n']}\\n")

def fine(message):
    called(message)
    return True

def down(message):
    called(message)
    return Path("up").exists()

def hangs(message):
    called(message)
    email = message["email"]
    while True:
        time.sleep(0.05)

async def waits(message):
    called(message)
    if message["n"] == 1:
        await asyncio.sleep(1000)
    return True

async def hurries(message):
    """Cancelled, it finishes what it has begun."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return True

async def wraps(message):
    """Cancelled, it fails in its own way."""
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        raise ValueError(message["email"])

async def refuses(message):
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def blocks(message):
    if message["n"] == 1:
        time.sleep(1000)
    await asyncio.sleep(1000)
'''


class Scene:
    """A queue with numbered messages, and syncers that misbehave."""

    def __init__(self, chronicle: StartChronicle, folder: Path) -> None:
        self._chronicle = chronicle
        self.folder = folder
        (folder / "limits.py").write_text(SYNCERS)

    def publish(self, count: int) -> None:
        lines = "".join(json.dumps({"n": n, "email": CANARY}) + "\n" for n in range(count))
        (self.folder / "messages.jsonl").write_text(lines)
        assert self.run("publish", "--url", "local:q.db", "--queue", "q", "messages.jsonl").returncode == 0

    def run(self, *arguments: str) -> ChronicleProcess:
        process = self._chronicle(*arguments, cwd=self.folder)
        process.wait(PATIENCE)
        return process

    def start(self, syncer: str, *options: str) -> ChronicleProcess:
        always = ("--url", "local:q.db", "--queue", "q", "--schema", "json", "--log-format", "json")
        return self._chronicle(
            "consume", *always, "--syncer", f"limits.py:{syncer}", *options, cwd=self.folder
        )

    def consume(self, syncer: str, *options: str) -> ChronicleProcess:
        process = self.start(syncer, "--until-empty", *options)
        process.wait(PATIENCE)
        assert CANARY.encode() not in process.printed
        return process

    def calls(self) -> list[tuple[float, int]]:
        path = self.folder / "calls"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [(float(line.split()[0]), int(line.split()[1])) for line in lines if line.endswith("\n")]

    def fatal(self, process: ChronicleProcess) -> dict[str, Any]:
        (line,) = process.lines("syncer.fatal")
        return line


@pytest.fixture
def scene(chronicle: StartChronicle, tmp_path: Path) -> Scene:
    return Scene(chronicle, tmp_path)


class TestTimeLimit:
    @pytest.mark.parametrize("on_exception", ["exit", "fail"])
    def test_an_async_syncer_past_it_is_cancelled(self, scene: Scene, on_exception: str) -> None:
        """The message has failed, with the usual second try; the others are synced meanwhile."""
        scene.publish(5)
        options = ("--time-limit", "500ms", "--concurrency", "2", "--on-exception", on_exception)
        process = scene.consume("waits", *options)
        assert process.returncode == 0, process.stderr
        assert counted(process) == {"received": 6, "ack": 4, "nack": 2, "requeued": 1, "dead_lettered": 1}
        (dead,) = process.lines("message.dead_lettered")
        assert dead["reason"] == "the syncer did not finish within 500ms"

    def test_what_it_makes_of_the_cancellation(self, scene: Scene) -> None:
        """True counts, because the work is done; an exception is no more fatal than the limit is."""
        scene.publish(1)
        assert counted(scene.consume("hurries", "--time-limit", "300ms")) == {"received": 1, "ack": 1}
        scene.publish(1)
        process = scene.consume("wraps", "--time-limit", "300ms")
        assert (process.returncode, stopped(process)["dead_lettered"]) == (0, 1)

    def test_a_sync_syncer_past_it_ends_the_process(self, scene: Scene) -> None:
        """Code 1, the thread's stack, and the message is where it was."""
        scene.publish(1)
        process = scene.consume("hangs", "--time-limit", "500ms")
        assert process.returncode == 1
        fatal = scene.fatal(process)
        assert fatal["text"] == "the syncer did not finish within 500ms, and cannot be interrupted"
        assert "limits.py" in fatal["trace"]
        assert "in hangs" in fatal["trace"]
        assert "email" not in fatal["trace"]
        assert "give its client a timeout, or make it async" in fatal["remedy"]
        assert "raise DeadLetter" in fatal["remedy"]
        assert counted(scene.consume("fine")) == {"received": 1, "ack": 1}

    def test_what_hung_was_not_tried(self, scene: Scene) -> None:
        scene.publish(1)
        assert scene.consume("hangs", "--time-limit", "500ms").returncode == 1
        told = counted(scene.consume("down"))
        assert (told["requeued"], told["dead_lettered"]) == (1, 1)

    @pytest.mark.parametrize("syncer", ["refuses", "blocks"])
    def test_an_async_syncer_that_does_not_end(self, scene: Scene, syncer: str) -> None:
        """It swallows the cancellation, or never lets the loop deliver it: the same as a sync one."""
        scene.publish(3)
        process = scene.consume(syncer, "--time-limit", "500ms", "--concurrency", "3")
        assert process.returncode == 1
        fatal = scene.fatal(process)
        assert fatal["text"].endswith("and did not end when it was cancelled")
        assert "await instead of blocking" in fatal["remedy"]
        assert f"in {syncer}" in fatal["trace"]
        assert counted(scene.consume("fine")) == {"received": 3, "ack": 3}

    def test_a_drain_has_it_too(self, scene: Scene) -> None:
        scene.publish(2)
        process = scene.start(
            "waits", "--time-limit", "1s", "--concurrency", "2", "--on-failure", "dead-letter"
        )
        wait_for(lambda: len(scene.calls()) == 2, PATIENCE, "two calls")
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, process.stderr
        assert counted(process) == {"received": 2, "ack": 1, "nack": 1, "dead_lettered": 1}

    def test_replay_has_it(self, scene: Scene) -> None:
        scene.publish(3)
        process = scene.run(
            "replay",
            "--syncer",
            "limits.py:waits",
            "--schema",
            "json",
            "--time-limit",
            "300ms",
            "messages.jsonl",
        )
        assert process.returncode == 1
        assert "the syncer did not finish within 300ms" in process.stderr


class TestRate:
    @pytest.mark.parametrize("command", ["consume", "replay"])
    def test_starts_are_spread(self, scene: Scene, command: str) -> None:
        scene.publish(15)
        if command == "consume":
            process = scene.consume("fine", "--rate", "20/s", "--concurrency", "5")
        else:
            options = ("--schema", "json", "--rate", "1200/min", "--concurrency", "5", "messages.jsonl")
            process = scene.run("replay", "--syncer", "limits.py:fine", *options)
        assert process.returncode == 0, process.stderr
        times = [when for when, _ in scene.calls()]
        assert len(times) == 15
        assert times[-1] - times[0] >= 12 / 20  # a late first one does not make the others early

    def test_a_stop_gives_back_what_would_take_too_long(self, scene: Scene) -> None:
        scene.publish(10)
        process = scene.start("fine", "--rate", "1/h", "--prefetch", "10", "--drain-timeout", "500ms")
        wait_for(scene.calls, PATIENCE, "a call")
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 4
        assert stopped(process)["ack"] == 1
        assert counted(scene.consume("fine")) == {"received": 9, "ack": 9}

    @pytest.mark.parametrize("wrong", ["10", "0/s", "fast", "5/d"])
    def test_a_wrong_rate(self, scene: Scene, wrong: str) -> None:
        process = scene.start("fine", "--rate", wrong)
        assert process.wait(PATIENCE) == 2
        assert "--rate takes a rate such as 50/s, 600/min or 100/h" in process.stderr


class TestBrake:
    def test_a_bounded_run_ends_and_says_why(self, scene: Scene) -> None:
        """`--until-empty` with a dead CRM ends at --max-time with code 4; nothing was lost or tried."""
        scene.publish(30)
        process = scene.consume("down", "--max-time", "3s")
        assert process.returncode == 4
        end = stopped(process)
        why = "intake was paused: 10 messages in a row failed: the syncer returned False"
        assert end["text"].startswith(f"stopped: time is up; {why}; ")
        assert (end["nack"], end["ack"]) == (0, 0)
        again = scene.consume("fine")
        assert counted(again) == {"received": 30, "ack": 30}
        assert not any(line["redelivered"] for line in again.lines("message.acked"))

    def test_a_signal_ends_it(self, scene: Scene) -> None:
        scene.publish(30)
        process = scene.start("down", "--concurrency", "4", "--drain-timeout", "1h")
        process.wait_for_line("intake.braked", PATIENCE)
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 4
        assert counted(scene.consume("fine")) == {"received": 30, "ack": 30}

    def test_it_can_be_turned_off(self, scene: Scene) -> None:
        scene.publish(15)
        process = scene.consume("down", "--brake", "0")
        assert (process.returncode, stopped(process)["dead_lettered"]) == (0, 15)

    def test_lanes(self, scene: Scene) -> None:
        """Each contact's messages stay in order, and none of them is harmed."""
        scene.publish(25)
        process = scene.start("down", "--until-empty", "--order", "field:n", "--concurrency", "5")
        process.wait_for_line("intake.braked", PATIENCE)
        (scene.folder / "up").touch()
        assert process.wait(PATIENCE) == 0, process.stderr
        assert counted(process) == {"received": 25, "ack": 25}

    def test_every_try_of_retry_n_is_kept(self, scene: Scene) -> None:
        scene.publish(25)
        process = scene.start("down", "--until-empty", "--on-failure", "retry:2", "--retry-delay", "10ms")
        process.wait_for_line("intake.probe_failed", PATIENCE)
        (scene.folder / "up").touch()
        assert process.wait(PATIENCE) == 0, process.stderr
        assert counted(process) == {"received": 25, "ack": 25}
