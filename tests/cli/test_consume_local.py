"""The whole of `consume` on the embedded queue, through the real command: publish, consume, dead letters."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.cli import PROGRAM, Said, run
from support.crm import CANARY, seen, told, write_lines, write_syncer
from support.fixtures import StartChronicle
from support.waiting import wait_for

URL = "local:chronicle.db"
QUEUE = ("--url", URL, "--queue", "q")
SYNC = ("--syncer", "crm:sync", "--schema", "json")
NOTICE = "chronicle: no --url given: using the embedded queue in this folder, local:chronicle.db"


@pytest.fixture(autouse=True)
def syncer(tmp_path: Path) -> None:
    write_syncer(tmp_path)


def publish(folder: Path, *whats: str) -> None:
    with LocalPublisher(Connector(f"local:{folder}/chronicle.db", "q")) as publisher:
        publisher.publish([Outgoing(json.dumps(told(what)).encode()) for what in whats])


def consume(folder: Path, *args: str, **more: Any) -> Said:
    said = run("consume", *QUEUE, *SYNC, *args, cwd=folder, **more)
    assert CANARY not in said.out + said.err
    return said


def waiting(folder: Path, queue: str = "q") -> list[dict[str, Any]]:
    """What is on a queue now, and still there afterwards."""
    transport = LocalTransport(Connector(f"local:{folder}/chronicle.db", queue))
    transport.open(lambda: False)
    try:
        return [json.loads(delivery.body) for delivery in transport.receive(1000, 0)]
    finally:
        transport.close()


def last_line(said: Said) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said.err.splitlines()[-1])
    assert found["event"] == "consumer.stopped"
    return found


class TestDone:
    def test_every_message_ends_in_one_known_place(self, tmp_path: Path) -> None:
        """R-004-29, 30, 33 and D-16: acknowledged, tried once more, dead-lettered, dropped."""
        write_lines(tmp_path / "m.jsonl", "yes", "no", "later", "dead", "drop", "retry")
        assert run("publish", *QUEUE, "m.jsonl", cwd=tmp_path).code == 0
        said = consume(tmp_path, "--until-empty")
        assert said.code == 0
        facts = last_line(said)
        assert {name: facts[name] for name in ("queued", "received", "ack", "nack", "dropped")} == {
            "queued": 6, "received": 9, "ack": 3, "nack": 5, "dropped": 1,
        }  # fmt: skip
        assert waiting(tmp_path) == []
        assert {message["do"] for message in waiting(tmp_path, "q.dlq")} == {"dead", "no"}

    @pytest.mark.parametrize("spec", ["crm:sync", "./crm.py:sync"])
    def test_Z1_the_file_that_was_loaded_is_named(self, tmp_path: Path, spec: str) -> None:
        """Somebody else's module of the same name would show here."""
        publish(tmp_path, "yes")
        said = consume(tmp_path, "--until-empty", "--syncer", spec)
        (starting,) = [line for line in said.err.splitlines() if '"consumer.starting"' in line]
        facts = json.loads(starting)
        assert (facts["syncer"], facts["file"]) == (spec, str(tmp_path / "crm.py"))

    def test_R_004_8_a_dead_letter_names_the_syncers_package(self, tmp_path: Path) -> None:
        publish(tmp_path, "dead")
        assert consume(tmp_path, "--until-empty").code == 0
        shown = run("dlq", "show", *QUEUE, "--json", cwd=tmp_path)
        assert json.loads(shown.out)["consumer"] == f"{socket.gethostname()}.crm"

    def test_a_second_run_finds_nothing_to_do(self, tmp_path: Path) -> None:
        publish(tmp_path, "yes")
        assert consume(tmp_path, "--until-empty").code == 0
        assert last_line(consume(tmp_path, "--until-empty"))["received"] == 0

    @pytest.mark.parametrize("concurrency", ["1", "8"])
    def test_max_messages_leaves_the_rest(self, tmp_path: Path, concurrency: str) -> None:
        publish(tmp_path, *["yes"] * 10)
        said = consume(tmp_path, "--max-messages", "4", "--concurrency", concurrency)
        assert said.code == 0
        assert len(waiting(tmp_path)) == 6
        assert len(seen(tmp_path)) == 4

    @pytest.mark.parametrize("bound", ["--max-time", "--idle-timeout"])
    def test_a_bound_in_time(self, tmp_path: Path, bound: str) -> None:
        publish(tmp_path, "yes")
        assert last_line(consume(tmp_path, bound, "2s"))["ack"] == 1

    def test_every_option_is_a_variable(self, tmp_path: Path) -> None:
        publish(tmp_path, "yes", "yes")
        env = {
            "CHRONICLE_URL": URL,
            "CHRONICLE_QUEUE": "q",
            "CHRONICLE_SYNCER": "crm:sync",
            "CHRONICLE_SCHEMA": "json",
            "CHRONICLE_UNTIL_EMPTY": "1",
        }
        assert run("consume", cwd=tmp_path, env=env).code == 0
        assert len(seen(tmp_path)) == 2

    def test_without_a_url_the_first_line_says_where_it_looks(self, tmp_path: Path) -> None:
        publish(tmp_path, "yes")
        said = run("consume", "--queue", "q", *SYNC, "--until-empty", cwd=tmp_path)
        assert said.code == 0
        assert said.err.splitlines()[0] == NOTICE
        assert NOTICE not in consume(tmp_path, "--until-empty").err


class TestFatal:
    """Exit code 1, and the message stays where it was (D-16, D-17)."""

    @pytest.mark.parametrize("what", ["raise", "nothing"])
    def test_the_culprit_stays(self, tmp_path: Path, what: str) -> None:
        publish(tmp_path, "yes", what, "yes")
        said = consume(tmp_path, "--until-empty", "--prefetch", "1")
        assert said.code == 1
        assert [message["do"] for message in waiting(tmp_path)] == [what, "yes"]

    def test_D_11_no_attempt_is_burnt(self, tmp_path: Path) -> None:
        publish(tmp_path, "raise")
        for _ in range(2):
            assert consume(tmp_path, "--until-empty").code == 1
        assert seen(tmp_path) == ["raise False"] * 2

    def test_on_exception_fail(self, tmp_path: Path) -> None:
        publish(tmp_path, "raise", "yes")
        assert consume(tmp_path, "--until-empty", "--on-exception", "fail").code == 0
        assert [message["do"] for message in waiting(tmp_path, "q.dlq")] == ["raise"]


class TestDamaged:
    """The queue file is damaged while a run is at work on it."""

    SYNCER = """
import os

def sync(message):
    with open("chronicle.db", "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize("chronicle.db") - 4096))
    return True
"""

    def test_X6_it_ends_the_run_with_a_remedy(self, tmp_path: Path) -> None:
        """No reconnect mends it, so the run does not wait for one."""
        (tmp_path / "damaging.py").write_text(self.SYNCER)
        publish(tmp_path, *["yes"] * 400)
        said = consume(tmp_path, "--until-empty", "--prefetch", "1", "--syncer", "damaging:sync")
        assert said.code == 3
        (failed,) = [line for line in said.raw.splitlines() if '"connection.failed"' in line]
        facts = json.loads(failed)
        assert "is damaged" in facts["text"]
        assert "restore a backup" in facts["remedy"]


class TestRefused:
    """Exit code 2: one line about what is wrong, one about what to do, nothing consumed (D-9)."""

    @pytest.mark.parametrize(
        ("args", "problem"),
        [
            (("--queue", "nowhere"), "chronicle.db has no queue 'nowhere'"),
            (("--url", "local:other.db"), "other.db does not exist"),
            (("--url", "gopher://x"), "the URL's scheme 'gopher' is not supported"),
            (("--syncer", "crm:sink"), "no function 'sink' in crm"),
            (("--syncer", "crm:Broken"), "the syncer crm:Broken did not start: OSError"),
            (("--app-dir", "nowhere"), "the app folder 'nowhere' does not exist"),
            (("--keys", "nowhere.json", "--schema", "proca"), "there is no key store nowhere.json"),
            (("--on-exhausted", "drop"), "--on-exhausted without --max-retries"),
            (("--concurrency", "0"), "--concurrency takes a whole number of at least 1, not '0'"),
            (("--prefetch", "true"), "--prefetch takes a whole number of at least 1, not 'true'"),
            (("--max-time", "1.5"), "--max-time takes a duration"),
            (("--max-messages", ""), "--max-messages takes a whole number of at least 1, not ''"),
            (("--drain-timeout", "-1"), "--drain-timeout takes a duration"),
            (("--reconnect-multiplier", "x"), "--reconnect-multiplier takes a number of at least 1"),
            (("--retry-max", "1s"), "No such option '--retry-max'. (Did you mean one of: '--reconnect-max'"),
            (("--nonsense",), "No such option"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_in_one_line_with_its_remedy(self, tmp_path: Path, args: tuple[str, ...], problem: str) -> None:
        publish(tmp_path, "yes")
        said = consume(tmp_path, "--until-empty", *args)
        assert said.code == 2
        assert len(said.problems) == 1
        assert said.problems[0].startswith(f"chronicle: {problem}")
        assert said.err.splitlines()[-1].startswith("  remedy: ")
        assert len(waiting(tmp_path)) == 1

    def test_R_004_10_a_variable_is_named(self, tmp_path: Path) -> None:
        said = consume(tmp_path, env={"CHRONICLE_CONCURRENCY": "many"})
        assert said.code == 2
        assert said.problems[0].startswith("chronicle: CHRONICLE_CONCURRENCY (--concurrency) takes ")


class TestSignals:
    def start(self, chronicle: StartChronicle, folder: Path, *args: str) -> Any:
        publish(folder, "wait", "yes", "yes")
        process = chronicle("consume", *QUEUE, *SYNC, *args, "--prefetch", "2")
        wait_for(lambda: seen(folder), 30, "the first message")
        return process

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_R_004_2_the_first_finishes_what_was_received(
        self, tmp_path: Path, chronicle: StartChronicle, number: signal.Signals
    ) -> None:
        process = self.start(chronicle, tmp_path)
        process.signal(number)
        stopping = process.wait_for_line("consumer.stopping")
        assert stopping["text"].startswith(f"stopping: {number.name}")
        (tmp_path / "go").touch()
        assert process.wait() == 0
        assert process.lines("consumer.stopped")[0]["ack"] == 2
        assert len(waiting(tmp_path)) == 1

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_X6_the_second_ends_it_and_nothing_is_lost(
        self, tmp_path: Path, chronicle: StartChronicle, number: signal.Signals, code: int
    ) -> None:
        process = self.start(chronicle, tmp_path)
        process.signal(number)
        process.wait_for_line("consumer.stopping")
        process.signal(number)
        assert process.wait() == code
        last = process.lines()[-1]
        assert (last["event"], last["level"]) == ("command.warning", "warning")
        assert last["text"].startswith("second signal: unfinished messages go back")
        assert len(waiting(tmp_path)) == 3

    def test_D_11_the_drain_deadline_has_its_own_code(
        self, tmp_path: Path, chronicle: StartChronicle
    ) -> None:
        process = self.start(chronicle, tmp_path, "--drain-timeout", "100ms")
        process.signal(signal.SIGTERM)
        assert process.wait() == 4
        assert process.lines("consumer.stopped")[0]["unfinished"] == 2
        assert len(process.lines("message.left")) == 2
        assert len(waiting(tmp_path)) == 3


def test_more_threads_than_there_is_room_for(tmp_path: Path) -> None:
    """D-9: exit 2 and a remedy; beyond what anybody could mean the option says so itself."""
    (tmp_path / "s.py").write_text("def sync(message):\n    return True\n")
    args = ("consume", "--queue", "q", "--syncer", "s.py:sync", "--until-empty", "--concurrency")
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n" + PROGRAM
    short = run(*args, "9999", cwd=tmp_path, program=program)
    assert (short.code, "cannot start 9999 threads" in short.err) == (2, True)
    beyond = run(*args, "100000", cwd=tmp_path)
    assert (beyond.code, "at most 10000" in beyond.problems[0]) == (2, True)
