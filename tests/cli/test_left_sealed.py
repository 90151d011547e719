"""Personal data that reaches the syncer sealed is not missed: said once with what to do, and at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from support import samples
from support.cli import Said, run

SYNCER: Final = "def sync(message):\n    return True\n"
SEALED: Final = "action-encrypted.json"
QUEUE: Final = ("--url", "local:q.db", "--queue", "q")
CONSUME: Final = ("consume", *QUEUE, "--syncer", "s.py:sync", "--until-empty")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text(SYNCER)
    keys = tmp_path / "keys.json"
    keys.touch(mode=0o600)
    keys.write_bytes(samples.body("keys.json"))
    return tmp_path


def consume(
    folder: Path, *options: str, names: tuple[str, ...] = (SEALED, SEALED, "action-plain.json")
) -> Said:
    files = [str(samples.FOLDER / name) for name in names]
    assert run("publish", *QUEUE, *files, cwd=folder).code == 0
    said = run(*CONSUME, *options, cwd=folder)
    assert said.code == 0, said.err
    return said


def lines(said: Said, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def test_one_warning_says_what_to_do_and_the_last_line_how_often(folder: Path) -> None:
    said = consume(folder)
    (told,) = lines(said, "keys.sealed_passed_on")
    assert (told["level"], told["action_id"]) == ("warning", 1002)
    for part in ("there is no key store", "--keys FILE", "--require-decryption"):
        assert part in told["text"]
    (stopped,) = lines(said, "consumer.stopped")
    assert stopped["sealed"] == 2
    assert "; 2 passed to the syncer with personal data left sealed, see --keys" in stopped["text"]


def test_each_such_message_has_a_note_and_is_no_warning_of_its_own(folder: Path) -> None:
    acked = lines(consume(folder), "message.acked")
    assert {line["level"] for line in acked} == {"info"}
    assert [line.get("notes") for line in acked] == [
        ["personal data left sealed: there is no key store"]
    ] * 2 + [None]


def test_at_level_warning_it_is_the_one_line(folder: Path) -> None:
    said = consume(folder, "--log-level", "warning")
    told = [json.loads(line)["event"] for line in said.err.splitlines() if line.startswith("{")]
    assert told == ["keys.sealed_passed_on"]


def test_the_summary_for_people_tells_it(folder: Path) -> None:
    said = consume(folder, "--log-format", "pretty")
    assert said.err.count("This is said once") == 1
    assert said.err.endswith("  2 passed to the syncer with personal data left sealed, see --keys\n")


def test_a_key_that_is_not_in_the_store_is_named(folder: Path) -> None:
    said = consume(folder, "--keys", "keys.json", names=("action-encrypted-unknown-key.json", SEALED))
    (told,) = lines(said, "keys.sealed_passed_on")
    assert "is not in the key store" in told["text"]
    assert [line["sealed"] for line in lines(said, "consumer.stopped")] == [1]


def test_with_the_keys_nothing_is_said(folder: Path) -> None:
    said = consume(folder, "--keys", "keys.json")
    assert lines(said, "keys.sealed_passed_on") == []
    (stopped,) = lines(said, "consumer.stopped")
    assert "sealed" not in stopped["text"]
