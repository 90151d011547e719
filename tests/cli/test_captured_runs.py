"""`consume --capture` and what `replay` does with it: the same verdicts, only the failed, two syncers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.captures.file import open_capture
from chronicle.core.record import from_record
from support.cli import PROGRAM, Said, run
from support.fixtures import Broker, StartChronicle
from support.samples import FOLDER
from support.waiting import wait_for

SYNCERS: Final = """
import chronicle

def sync(message):
    n = message["n"]
    message["n"] = None  # a syncer may do as it likes with its message
    if n % 10 == 9:
        raise chronicle.Drop("nines")
    return n % 3 != 0

def other(message):
    return message["n"] % 4 != 0

def boom(message):
    raise RuntimeError("boom")
"""
SECRET: Final = {"CHRONICLE_PASSPHRASE": "hunter22-canary"}
QUIET: Final = ("--schema", "json", "--log-level", "error")
KILLED_AFTER: Final = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text(SYNCERS)
    (tmp_path / "m.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(1, 31)))
    return tmp_path


def consume(folder: Path, *args: str, env: dict[str, str] | None = None, program: str = PROGRAM) -> Said:
    put = run("publish", "--url", "local:q.db", "--queue", "q", "m.jsonl", cwd=folder)
    assert put.code == 0
    return run(
        "consume", "--url", "local:q.db", "--queue", "q", "--syncer", "s.py:sync", "--until-empty",
        *QUIET, *args, cwd=folder, env=env, program=program,
    )  # fmt: skip


def replay(folder: Path, *args: str, env: dict[str, str] | None = None) -> Said:
    return run("replay", "--syncer", "s.py:sync", *QUIET, *args, cwd=folder, env=env)


def accounts(path: Path) -> dict[int, dict[str, Any]]:
    """What the capture says about each message, by the number in its body."""
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    return {json.loads(from_record(one).body)["n"]: one["chronicle"] for one in records}


def expected(n: int) -> tuple[str, str]:
    if n % 10 == 9:
        return "asked", "drop"
    return ("synced", "ack") if n % 3 else ("failed", "dead-letter")


def test_every_message_is_captured_once_with_its_outcome(folder: Path) -> None:
    assert consume(folder, "--capture", "c.jsonl").code == 0
    path = folder / "c.jsonl"
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes().splitlines()) == 30
    found = accounts(path)
    assert {n: (a["outcome"], a["verdict"]) for n, a in found.items()} == {
        n: expected(n) for n in range(1, 31)
    }
    assert [found[n]["attempts"] for n in (1, 3, 9)] == [1, 2, 1]
    assert all(account["duration_ms"] >= 0 and account["reason"] for account in found.values())


def test_a_capture_replayed_gives_the_same_verdicts(folder: Path) -> None:
    """Encrypted or not, and whatever the broker marked."""
    assert consume(folder, "--capture", "c.jsonl").code == 0
    assert consume(folder, "--capture", "c.encrypted", "--encrypt", env=SECRET).code == 0
    said = [replay(folder, "c.jsonl"), replay(folder, "c.encrypted", env=SECRET), replay(folder, "m.jsonl")]
    for one in said:
        assert one.code == 1
        assert one.out.splitlines()[:4] == [
            "      30  messages",
            "      18  synced, ack",
            "       9  failed, dead-letter",
            "       3  asked, drop",
        ]
        assert "chronicle: " not in one.err


@pytest.mark.parametrize("quorum", [False, True])
def test_a_capture_of_rabbitmq_replayed_gives_the_same_verdicts(
    rabbit: Broker, folder: Path, quorum: bool
) -> None:
    queue = rabbit.queues.name("verdicts")
    rabbit.queues.declare_with_dead_letters(queue, quorum=quorum)
    sent = (folder / "m.jsonl").read_bytes().splitlines()
    rabbit.queues.publish(queue, *sent, headers={"h": b"\0"})
    said = run(
        "consume", "--queue", queue, "--syncer", "s.py:sync", "--until-empty", *QUIET, "--concurrency", "3",
        "--capture", "c.encrypted", "--encrypt", cwd=folder, env=SECRET | {"CHRONICLE_URL": rabbit.url},
    )  # fmt: skip
    assert said.code == 0, said.err
    again = replay(folder, "c.encrypted", env=SECRET)
    assert again.out.splitlines()[:4] == [
        "      30  messages",
        "      18  synced, ack",
        "       9  failed, dead-letter",
        "       3  asked, drop",
    ]
    assert run("publish", "--queue", "back", "c.encrypted", cwd=folder, env=SECRET).code == 0
    with sqlite3.connect(folder / "chronicle.db") as db:
        back = [body for (body,) in db.execute("SELECT body FROM contents")]
    assert sorted(back) == sorted(sent)


def test_a_passphrase_is_hidden_from_the_log(folder: Path) -> None:
    """Z4: whatever a syncer logs."""
    (folder / "s.py").write_text(
        "import logging, os\ndef sync(m):\n"
        "    logging.error('it is %s', os.environ['CHRONICLE_PASSPHRASE'])\n    return True\n"
    )
    said = consume(folder, "--capture", "c.encrypted", "--encrypt", env=SECRET)
    assert said.code == 0
    assert "it is" in said.err
    assert "hunter22" not in said.err


def test_a_capture_grows_from_run_to_run(folder: Path) -> None:
    for _ in range(2):
        assert consume(folder, "--capture", "c.encrypted", "--encrypt", env=SECRET).code == 0
    said = replay(folder, "c.encrypted", env=SECRET)
    assert said.out.splitlines()[0] == "      60  messages"
    assert "chronicle: " not in said.err
    assert consume(folder, "--capture", "c.encrypted").code == 2
    assert (
        consume(folder, "--capture", "c.encrypted", "--encrypt", env={"CHRONICLE_PASSPHRASE": "w"}).code == 2
    )


def test_only_failed(folder: Path) -> None:
    """What was not synced, without what the syncer dropped on purpose."""
    assert consume(folder, "--capture", "c.jsonl").code == 0
    said = replay(folder, "--only-failed", "c.jsonl")
    assert said.code == 1
    assert said.out.splitlines()[:2] == ["       9  messages", "       9  failed, dead-letter"]
    mixed = replay(folder, "--only-failed", "c.jsonl", "m.jsonl")
    assert mixed.out == said.out
    assert "skipped 30 messages without a recorded outcome" in mixed.err
    fixed = run(
        "replay", "--syncer", "s.py:other", *QUIET, "--only-failed", "c.jsonl",
        "--dead-letters", "still.jsonl", cwd=folder,
    )  # fmt: skip
    assert fixed.out.splitlines()[0] == "       9  messages"
    # What still fails can be gone through again in the same way.
    again = replay(folder, "--only-failed", "still.jsonl")
    assert again.out.splitlines()[0].split() == ["2", "messages"]


def test_only_failed_wants_outcomes(folder: Path) -> None:
    """A plain message is not a failed one: refused, not guessed."""
    said = replay(folder, "--only-failed", "m.jsonl")
    assert (said.code, len(said.problems), said.out) == (2, 1, "")
    assert "none of these messages" in said.err


def test_nothing_failed_is_nothing_to_do(folder: Path) -> None:
    (folder / "m.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    assert consume(folder, "--capture", "c.jsonl").code == 0
    said = replay(folder, "--only-failed", "c.jsonl")
    assert (said.code, said.out, said.err) == (0, "       0  messages\n", "")


def test_against_shows_what_changed(folder: Path) -> None:
    """Both syncers over the same messages; exit 1 because something changed."""
    said = replay(folder, "--against", "s.py:other", "m.jsonl")
    changed = [n for n in range(1, 31) if expected(n) != (("synced", "ack") if n % 4 else expected(3))]
    assert said.code == 1
    assert said.out.splitlines()[0] == f"      30  messages, {len(changed)} changed"
    assert "s.py:sync  s.py:other" in said.out
    assert "  m.jsonl:3: failed, dead-letter → synced, ack" in said.out
    assert "  m.jsonl:4: synced, ack → failed, dead-letter" in said.out
    assert "m.jsonl:1:" not in said.out


def test_against_itself_changes_nothing(folder: Path) -> None:
    """Also though the syncer spoils its messages: each gets a copy of its own."""
    said = replay(folder, "--against", "s.py:sync", "--concurrency", "4", "m.jsonl")
    assert (said.code, said.out.splitlines()[0]) == (0, "      30  messages, 0 changed")


def test_against_a_syncer_that_raises_compares_nothing(folder: Path) -> None:
    said = replay(folder, "--against", "s.py:boom", "m.jsonl")
    assert said.code == 1
    assert "changed" not in said.out
    assert "s.py:boom did not finish" in said.err
    counted = replay(folder, "--against", "s.py:boom", "--on-exception", "fail", "m.jsonl")
    assert counted.code == 1
    assert "30  failed, dead-letter" in counted.out


def test_against_names_the_action_of_a_proca_message(folder: Path) -> None:
    (folder / "ids.py").write_text("def yes(m):\n    return True\ndef no(m):\n    return False\n")
    sample = str(FOLDER / "action-plain.json")
    args = ("--syncer", "ids.py:yes", "--against", "ids.py:no", "--log-level", "error", sample)
    said = run("replay", *args, cwd=folder)
    action = json.loads(Path(sample).read_text())["actionId"]
    assert f"  action-plain.json:1 action {action}: synced, ack → failed, dead-letter" in said.out


def test_against_refuses_what_it_cannot_do_twice(folder: Path) -> None:
    for stdin in ("-", "/dev/stdin"):
        said = replay(folder, "--against", "s.py:other", stdin)
        assert said.code == 2
        assert "cannot be used with --against" in said.problems[0]
    assert replay(folder, "--against", "s.py:other", "m.jsonl", "--dead-letters", "d.jsonl").code == 2


def test_personal_data_shows_in_the_capture_only_as_it_came(rabbit: Broker, folder: Path) -> None:
    """D-21, Z5: nothing of it in any line, and still sealed in the file."""
    for sample in FOLDER.glob("*.json"):
        shutil.copy(sample, folder)
    (folder / "keys.json").chmod(0o600)
    (folder / "p.py").write_text("def sync(m):\n    raise ValueError(m['contact'])\n")
    queue = rabbit.queues.name("personal")
    rabbit.queues.declare_with_dead_letters(queue)
    sent = (folder / "action-encrypted.json").read_bytes()
    rabbit.queues.publish(queue, sent)
    said = run(
        "consume", "--queue", queue, "--syncer", "p.py:sync", "--keys", "keys.json", "--until-empty",
        "--on-exception", "fail", "--log-level", "debug", "--capture", "c.jsonl",
        cwd=folder, env={"CHRONICLE_URL": rabbit.url},
    )  # fmt: skip
    assert said.code == 0, said.err
    (line,) = (folder / "c.jsonl").read_bytes().splitlines()
    assert from_record(json.loads(line)).body == sent
    opened = json.loads((folder / "expected-decrypted.json").read_text())
    canaries = [text for text in leaves(opened) if len(text) > 3]
    assert canaries
    shown = said.out + said.err + line.decode()
    assert not [text for text in canaries if text in shown]


def leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in leaves(item)]
    return [value] if isinstance(value, str) else []


def test_a_kill_leaves_whole_lines_of_settled_messages_only(folder: Path, chronicle: StartChronicle) -> None:
    """A record is written after its message was settled: what is in the file is in no queue any more.

    Linux ends a write between two pages when its process is killed: the next writer removes half a line.
    """
    (folder / "m.jsonl").write_text("".join(f'{{"n": {n}, "x": "{"y" * 3000}"}}\n' for n in range(3000)))
    (folder / "k.py").write_text("def sync(m):\n    return True\n")
    assert run("publish", "--url", "local:q.db", "--queue", "q", "m.jsonl", cwd=folder).code == 0
    process = chronicle(
        "consume", "--url", "local:q.db", "--queue", "q", "--syncer", "k.py:sync", "--schema", "json",
        "--concurrency", "4", "--capture", "c.jsonl",
    )  # fmt: skip
    capture = folder / "c.jsonl"
    wait_for(
        lambda: capture.exists() and capture.read_bytes().count(b"\n") > KILLED_AFTER, 60, "a good many lines"
    )
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    killed = capture.read_bytes()
    open_capture(str(capture), None).abandon()
    assert capture.read_bytes() == killed[: killed.rfind(b"\n") + 1]
    kept = accounts(capture)
    with sqlite3.connect(folder / "q.db") as db:
        waiting = {json.loads(body)["n"] for (body,) in db.execute("SELECT body FROM contents")}
    assert len(kept) > KILLED_AFTER
    assert not waiting & set(kept)


def test_a_capture_that_cannot_be_written_ends_the_run_and_loses_nothing(folder: Path) -> None:
    """A full disk: exit 1, loud, every message settled or still there."""
    (folder / "m.jsonl").write_text("".join(f'{{"n": {n}, "x": "{"y" * 100_000}"}}\n' for n in (1, 2) * 20))
    program = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))\n" + PROGRAM
    said = consume(folder, "--capture", "c.jsonl", program=program)
    assert said.code == 1, said.err
    lines = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    failures = [line for line in lines if line["event"] == "capture.failed"]
    assert len(failures) == 2
    captured = len((folder / "c.jsonl").read_bytes().splitlines())
    with sqlite3.connect(folder / "q.db") as db:
        ((waiting,),) = db.execute("SELECT count(*) FROM messages")
    assert captured
    assert waiting
    assert captured + failures[-1]["missing"] + waiting == 40
    assert replay(folder, "c.jsonl").out.splitlines()[0].split() == [str(captured), "messages"]


def test_encrypt_belongs_to_a_capture(folder: Path) -> None:
    assert consume(folder, "--encrypt", env=SECRET).code == 2
    assert consume(folder, env=SECRET | {"CHRONICLE_ENCRYPT": "true"}).code == 0


def test_a_capture_others_can_read_is_refused_before_the_first_message(folder: Path) -> None:
    (folder / "c.jsonl").touch()
    os.chmod(folder / "c.jsonl", 0o644)
    assert consume(folder, "--capture", "c.jsonl").code == 2
    with sqlite3.connect(folder / "q.db") as db:
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (30,)
