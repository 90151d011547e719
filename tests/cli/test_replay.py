"""`chronicle replay`: the verdicts of consume over files, through the real command."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from support import samples
from support.cli import PROGRAM, TIMEOUT, Said, run
from support.crm import CANARY, seen, told, write_lines, write_syncer
from support.fixtures import StartChronicle
from support.waiting import wait_for

SYNC = ("--syncer", "crm:sync", "--schema", "json")


@pytest.fixture(autouse=True)
def syncer(tmp_path: Path) -> None:
    write_syncer(tmp_path)


def replay(folder: Path, *args: str, **more: Any) -> Said:
    said = run("replay", *SYNC, *args, cwd=folder, **more)
    assert CANARY not in said.out + said.err
    return said


def numbers(said: Said) -> dict[str, int]:
    """The table's upper part: how often each end was met."""
    rows = [line.split(maxsplit=1) for line in said.out.split("\n\n")[0].splitlines()]
    return {end: int(count) for count, end in rows}


def test_what_a_stranger_sealed_is_bad_input_with_a_pinned_sign_key(tmp_path: Path) -> None:
    """Z7: by option, by variable and by the key store; the reason names the key."""
    for name in ("keys.json", "keys-pinned.json"):
        (tmp_path / name).write_bytes(samples.body(name))
        (tmp_path / name).chmod(0o600)
    for name in ("action-encrypted.json", "action-encrypted-stranger.json"):
        (tmp_path / name).write_bytes(samples.body(name))
    (tmp_path / "all.py").write_text("def sync(message):\n    return True\n")
    signer, stranger = (samples.message(f"action-encrypted{name}.json")["personalInfo"]["signKey"]["public"]
                        for name in ("", "-stranger"))  # fmt: skip

    def ends(*options: str, **environ: str) -> dict[str, int]:
        said = run(
            "replay", "--syncer", "all:sync", *options, "action-encrypted.json",
            "action-encrypted-stranger.json", cwd=tmp_path, env=environ,
        )  # fmt: skip
        return numbers(said) | {"told": said.err.count(f"sealed with the key {stranger[:8]}…")}

    open_to_all = ends("--keys", "keys.json")
    assert (open_to_all["synced, ack"], open_to_all["told"]) == (2, 0)
    for pinned in (
        ends("--keys", "keys.json", "--sign-key", signer),
        ends("--keys", "keys.json", CHRONICLE_SIGN_KEY=f"{signer} {signer}"),
        ends("--keys", "keys-pinned.json"),
    ):
        assert pinned["synced, ack"] == 1
        assert pinned["told"] >= 1
    refused = run(
        "replay", "--syncer", "all:sync", "--sign-key", signer, "action-encrypted.json", cwd=tmp_path
    )
    assert refused.code == 2
    assert "--sign-key has no effect without --keys" in refused.err


class TestSources:
    def test_a_file_with_one_message(self, tmp_path: Path) -> None:
        (tmp_path / "one.json").write_text(json.dumps(told("yes"), indent=2))
        said = replay(tmp_path, "one.json")
        assert said.code == 0
        assert numbers(said) == {"message": 1, "synced, ack": 1}

    def test_json_lines_and_a_folder_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        folder = tmp_path / "messages"
        folder.mkdir()
        write_lines(folder / "b.jsonl", "later", "yes")
        write_lines(folder / "a.json", "drop")
        (folder / "notes.txt").write_text("not a message")
        said = replay(tmp_path, "messages")
        assert said.code == 0
        assert numbers(said) == {"messages": 3, "synced, ack": 2, "asked, drop": 1}
        assert seen(tmp_path)[0] == "drop False"

    def test_standard_input(self, tmp_path: Path) -> None:
        lines = "".join(json.dumps(told(what)) + "\n" for what in ("yes", "yes"))
        said = replay(tmp_path, "-", stdin=lines)
        assert (said.code, numbers(said)) == (0, {"messages": 2, "synced, ack": 2})

    def test_records(self, tmp_path: Path) -> None:
        """A captured message comes as for the first time, whatever happened to it at its broker."""
        body = json.dumps(told("yes"))
        record = {"transport": "rabbitmq", "queue": "q", "redelivered": True, "body": {"base64": b64(body)}}
        (tmp_path / "capture.jsonl").write_text(json.dumps(record) + "\n")
        assert replay(tmp_path, "capture.jsonl").code == 0
        assert seen(tmp_path) == ["yes False"]

    def test_a_dead_letter_starts_afresh(self, tmp_path: Path) -> None:
        """Headers of its death are left out, as when it is published: no try of then counts now."""
        headers = {
            "x-chronicle-attempts": 3,
            "x-chronicle-reason": "the syncer returned False",
            "x-delivery-count": 4,
            "x-death": [{"queue": "q", "reason": "rejected", "count": 5}],
            "tenant": "12",
        }
        record = {
            "transport": "rabbitmq", "queue": "q", "body": {"base64": b64("{}")}, "headers": headers,
            "properties": {"message_id": "m"}, "metadata": {"timestamp": 7, "counted": 2},
        }  # fmt: skip
        (tmp_path / "dead.jsonl").write_text(json.dumps(record) + "\n")
        (tmp_path / "tells.py").write_text(
            "def sync(message, delivery):\n"
            "    facts = (delivery.attempts, dict(delivery.headers), dict(delivery.properties))\n"
            "    print(*facts, delivery.timestamp)\n"
            "    return delivery.attempts > 1\n"
        )
        said = run(
            "replay", "--syncer", "tells:sync", "--schema", "json", "--max-retries", "2", "dead.jsonl",
            cwd=tmp_path,
        )  # fmt: skip
        assert said.code == 0
        told = "{'tenant': '12'} {'message_id': 'm'} 7"
        assert [line for line in said.out.splitlines() if "tenant" in line] == [f"1 {told}", f"2 {told}"]

    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ("nowhere.json", "there is no file nowhere.json"),
            ("empty", "no messages in the folder empty"),
            ("damaged.jsonl", "damaged.jsonl, line 1: a damaged record"),
        ],
    )
    def test_a_source_that_is_none_is_the_operators_to_mend(
        self, tmp_path: Path, path: str, problem: str
    ) -> None:
        (tmp_path / "empty").mkdir()
        damaged = {"transport": "rabbitmq", "queue": "q", "body": {"base64": "!"}}
        (tmp_path / "damaged.jsonl").write_text(json.dumps(damaged) + "\n")
        said = replay(tmp_path, path)
        assert said.code == 2
        assert said.problems[-1].startswith(f"chronicle: {problem}")
        assert said.err.splitlines()[-1].startswith("  remedy: ")


class TestVerdicts:
    def test_R_004_30_a_failure_gets_its_second_try_and_then_counts(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", "yes", "no", "retry", "dead", "drop")
        (tmp_path / "bad.json").write_text("{")
        said = replay(tmp_path, "m.jsonl", "bad.json", "--prefetch", "1")
        assert said.code == 1
        assert numbers(said) == {
            "messages": 6,
            "synced, ack": 2,
            "failed, dead-letter": 1,
            "asked, dead-letter": 1,
            "asked, drop": 1,
            "invalid, dead-letter": 1,
        }
        assert sorted(seen(tmp_path)) == [
            "dead False", "drop False", "no False", "no True", "retry False", "retry True", "yes False",
        ]  # fmt: skip
        failures = said.out.split("\n\n")[1].splitlines()
        assert "  m.jsonl:2: the syncer returned False" in failures
        assert any(line.startswith("  bad.json:1: the body is not JSON") for line in failures)
        assert len(failures) == 3

    def test_the_policy_options_count(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", "no", "raise")
        said = replay(tmp_path, "m.jsonl", "--on-failure", "dead-letter", "--on-exception", "fail")
        assert said.code == 1
        assert numbers(said) == {"messages": 2, "failed, dead-letter": 2}
        assert len(seen(tmp_path)) == 2

    @pytest.mark.parametrize(
        ("what", "why"),
        [
            ("raise", "the syncer raised Gone"),
            ("nothing", "the syncer returned None, not True or False: is a `return True` missing?"),
        ],
    )
    def test_R_004_31_and_32_a_fatal_syncer(self, tmp_path: Path, what: str, why: str) -> None:
        write_lines(tmp_path / "m.jsonl", "yes", what)
        said = replay(tmp_path, "m.jsonl", "--prefetch", "1")
        assert said.code == 1
        assert numbers(said) == {"messages": 2, "synced, ack": 1, "fatal, leave": 1}
        assert why in said.out
        assert why in said.err

    def test_more_failures_than_a_person_reads(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", *["dead"] * 25)
        said = replay(tmp_path, "m.jsonl")
        assert said.out.splitlines()[-1] == "  … and 5 more"

    def test_proca_is_the_usual_schema(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", "yes")
        said = run("replay", "--syncer", "crm:sync", "m.jsonl", cwd=tmp_path)
        assert said.code == 1
        assert numbers(said) == {"message": 1, "invalid, dead-letter": 1}


class TestDeadLetters:
    def test_they_are_private_and_replay_again(self, tmp_path: Path) -> None:
        """The file holds the bytes as they came, and the reason; a second run finds the same messages."""
        write_lines(tmp_path / "m.jsonl", "dead", "yes", "no")
        assert replay(tmp_path, "m.jsonl", "--dead-letters", "dead.jsonl").code == 1
        path = tmp_path / "dead.jsonl"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert sorted(record["body"]["json"]["do"] for record in records) == ["dead", "no"]
        assert {record["chronicle"]["attempts"] for record in records} == {1, 2}
        assert CANARY not in json.dumps([record["chronicle"] for record in records])
        os.remove(tmp_path / "seen")
        again = replay(tmp_path, "dead.jsonl", "--dead-letters", "again.jsonl")
        assert numbers(again) == {"messages": 2, "asked, dead-letter": 1, "failed, dead-letter": 1}
        assert sorted(seen(tmp_path)) == ["dead False", "no False", "no True"]
        assert len((tmp_path / "again.jsonl").read_text().splitlines()) == 2

    @pytest.mark.parametrize("source", ["dead.jsonl", "other.jsonl", ".", "-"])
    def test_they_are_not_written_where_they_are_read(self, tmp_path: Path, source: str) -> None:
        """By whatever name: what is appended would be replayed, too, and never come to an end."""
        write_lines(tmp_path / "m.jsonl", "dead")
        assert replay(tmp_path, "m.jsonl", "--dead-letters", "dead.jsonl").code == 1
        (tmp_path / "other.jsonl").symlink_to("dead.jsonl")
        before = (tmp_path / "dead.jsonl").read_bytes()
        with open(tmp_path / "dead.jsonl", "rb") as stdin:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, "replay", *SYNC, source, "--dead-letters", "dead.jsonl"],
                cwd=tmp_path, stdin=stdin, capture_output=True, text=True, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        assert done.returncode == 2
        said = Said(done.returncode, done.stdout, done.stderr)
        assert said.problems == ["chronicle: --dead-letters dead.jsonl is one of the files to be read"]
        assert (tmp_path / "dead.jsonl").read_bytes() == before

    def test_they_are_not_appended_to_what_is_no_capture(self, tmp_path: Path) -> None:
        """Nor is such a file mended: a key store of one line, without a newline, was cut to nothing."""
        write_lines(tmp_path / "m.jsonl", "dead")
        store = tmp_path / "keys.json"
        store.write_bytes(samples.body("keys.json").strip())
        store.chmod(0o600)
        said = replay(tmp_path, "m.jsonl", "--dead-letters", "keys.json")
        assert said.code == 2
        assert said.problems == ["chronicle: keys.json exists and is not a capture"]
        assert store.read_bytes() == samples.body("keys.json").strip()
        assert seen(tmp_path) == []

    def test_a_new_file_for_them_in_a_folder_that_is_read_is_not_read(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", "dead", "dead")
        said = replay(tmp_path, ".", "--dead-letters", "z.jsonl")
        assert numbers(said) == {"messages": 2, "asked, dead-letter": 2}
        assert len((tmp_path / "z.jsonl").read_text().splitlines()) == 2

    def test_a_file_that_cannot_be_written(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "m.jsonl", "yes")
        said = replay(tmp_path, "m.jsonl", "--dead-letters", "no/such/folder")
        assert said.code == 2
        assert said.problems == ["chronicle: no/such/folder cannot be written: No such file or directory"]
        assert seen(tmp_path) == []


class TestEnding:
    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ("crm:sink", "no function 'sink' in crm"),
            ("nowhere:sync", "no module 'nowhere'"),
            ("crm:Broken", "the syncer crm:Broken did not start: OSError"),
        ],
    )
    def test_D_9_a_syncer_that_cannot_be_had(self, tmp_path: Path, spec: str, problem: str) -> None:
        write_lines(tmp_path / "m.jsonl", "yes")
        said = run("replay", "--syncer", spec, "--schema", "json", "m.jsonl", cwd=tmp_path)
        assert said.code == 2
        assert said.problems[-1].startswith(f"chronicle: {problem}")
        assert said.err.splitlines()[-1].startswith("  remedy: ")

    def test_R_004_2_an_interrupt_finishes_what_was_begun(
        self, tmp_path: Path, chronicle: StartChronicle
    ) -> None:
        write_lines(tmp_path / "m.jsonl", "wait", *["yes"] * 10_000)
        process = chronicle("replay", *SYNC, "--log-level", "warning", "m.jsonl")
        wait_for(lambda: seen(tmp_path), 30, "the first message")
        process.signal(signal.SIGINT)
        (tmp_path / "go").touch()
        assert process.wait() == 4  # it is not a success: not every message was tried
        assert int(process.stdout.split()[0]) < 10_000

    def test_D_17_a_thread_of_the_modules_own_does_not_keep_a_failed_run_alive(
        self, tmp_path: Path, chronicle: StartChronicle
    ) -> None:
        write_lines(tmp_path / "m.jsonl", "raise")
        thread = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
        (tmp_path / "busy.py").write_text(f"{thread}from crm import sync\n")
        process = chronicle("replay", "--syncer", "busy:sync", "--schema", "json", "m.jsonl")
        assert process.wait() == 1
        assert "fatal, leave" in process.stdout


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()
