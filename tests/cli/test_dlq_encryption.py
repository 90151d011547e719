"""Dead letters in files are sealed as captures are."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import PROGRAM, run

WHERE = ("--url", "local:q.db", "--queue", "q")
SET = {"CHRONICLE_PASSPHRASE": "four random words"}
CANARY = "canary@example.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five dead letters."""
    (tmp_path / "crm.py").write_text(
        "def no(message):\n    return False\ndef yes(message):\n    return True\n"
    )
    (tmp_path / "m.jsonl").write_text(f'{{"email": "{CANARY}"}}\n' * 5)
    assert run("publish", *WHERE, "m.jsonl", cwd=tmp_path).code == 0
    dying = ("--syncer", "crm.py:no", "--schema", "json", "--on-failure", "dead-letter", "--until-empty")
    assert run("consume", *WHERE, *dying, cwd=tmp_path).code == 0
    return tmp_path


def replayed(folder: Path, file: str) -> str:
    said = run("replay", "--syncer", "crm.py:yes", "--schema", "json", file, cwd=folder, env=SET)
    assert said.code == 0, said.err
    return said.out.split()[0]


@pytest.mark.parametrize("typed", [True, False])
def test_an_export_is_sealed_where_a_capture_would_be(folder: Path, typed: bool) -> None:
    """With --encrypt, and whenever there is a secret."""
    flag = ("--encrypt",) if typed else ()
    said = run("dlq", "export", *WHERE, *flag, "dead.enc", cwd=folder, env=SET)
    assert (said.code, said.out) == (0, "5 dead letters in dead.enc; they are still in q.dlq\n")
    content = (folder / "dead.enc").read_bytes()
    assert content.startswith(b'{"sealed"')
    assert CANARY.encode() not in content
    assert b"base64" not in content
    assert (folder / "dead.enc").stat().st_mode & 0o777 == 0o600
    assert replayed(folder, "dead.enc") == "5"


def test_a_plain_one_can_be_asked_for(folder: Path) -> None:
    assert run("dlq", "export", *WHERE, "--no-encrypt", "dead.jsonl", cwd=folder, env=SET).code == 0
    assert b"base64" in (folder / "dead.jsonl").read_bytes()


def test_the_copies_of_a_drop_are_sealed_too(folder: Path) -> None:
    """Several drops go on with the same file; a plain one does not continue it, and drops nothing."""
    drop = ("dlq", "drop", *WHERE, "--yes", "--export", "dropped.jsonl", "--limit", "2")
    assert run(*drop, cwd=folder, env=SET).code == run(*drop, cwd=folder, env=SET).code == 0
    refused = run(*drop, cwd=folder)
    assert (refused.code, "dropped.jsonl is encrypted" in refused.err) == (2, True)
    assert replayed(folder, "dropped.jsonl") == "4"
    assert run("dlq", "list", *WHERE, cwd=folder).out.startswith("q.dlq: 1 dead letter")


@pytest.mark.parametrize(
    "command", [("export", "dead.enc", "--encrypt"), ("drop", "--yes", "--encrypt"), ("export", "dead.enc")]
)
def test_without_a_secret_nothing_is_touched(folder: Path, command: tuple[str, ...]) -> None:
    """The secret is asked for before the first dead letter is held."""
    env = {} if "--encrypt" in command else {"CHRONICLE_ENCRYPT": "true"}
    said = run("dlq", *command, *WHERE, cwd=folder, env=env)
    assert (said.code, "a passphrase is needed" in said.err) == (2, True)
    assert not (folder / "dead.enc").exists()
    assert run("dlq", "list", *WHERE, cwd=folder).out.startswith("q.dlq: 5 dead letters")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("export", "-", "--reveal", "--encrypt"), "--encrypt has no effect on standard output"),
        (("drop", "--yes", "--no-export", "--encrypt"), "--encrypt has no effect with --no-export"),
    ],
)
def test_where_there_is_nothing_to_seal(folder: Path, command: tuple[str, ...], why: str) -> None:
    said = run("dlq", *command, *WHERE, cwd=folder, env=SET)
    assert (said.code, why in said.err) == (2, True)


def test_an_export_that_a_full_disk_does_not_take_leaves_no_file(tmp_path: Path) -> None:
    """The next try would find a file that exists already."""
    (tmp_path / "crm.py").write_text("def no(message):\n    return False\n")
    (tmp_path / "m.json").write_text(f'"{"x" * 3_000_000}"')
    assert run("publish", *WHERE, "m.json", cwd=tmp_path).code == 0
    dying = ("--syncer", "crm.py:no", "--schema", "json", "--on-failure", "dead-letter", "--until-empty")
    assert run("consume", *WHERE, *dying, cwd=tmp_path).code == 0
    full = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8_000_000, 8_000_000))\n{PROGRAM}"
    export = ("dlq", "export", *WHERE, "dead.jsonl")
    said = run(*export, cwd=tmp_path, program=full)
    assert (said.code, said.problems[-1]) == (2, "chronicle: the file cannot be written: File too large")
    assert not (tmp_path / "dead.jsonl").exists()
    assert run(*export, cwd=tmp_path).code == 0
