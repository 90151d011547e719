"""`chronicle keys lock`, and where a passphrase may come from."""

from __future__ import annotations

import shutil
from base64 import b64encode
from pathlib import Path
from typing import Final

import pytest

from support.answering import at_terminal
from support.cli import Said, run
from support.samples import FOLDER

CANARY: Final = "hunter22-canary"
BY_VARIABLE: Final = {"CHRONICLE_PASSPHRASE": CANARY}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for sample in FOLDER.glob("*.json"):
        shutil.copy(sample, tmp_path)
    (tmp_path / "keys.json").chmod(0o600)
    return tmp_path


def keys(folder: Path, *args: str, env: dict[str, str] | None = None) -> Said:
    said = run("keys", *args, cwd=folder, env=env)
    assert CANARY not in said.out + said.err
    return said


def locked(folder: Path) -> bool:
    return (folder / "keys.json").read_bytes().startswith(b'{"sealed":"chronicle:2"')


def test_lock_and_unlock(folder: Path) -> None:
    """The same file afterwards, private all the while."""
    before = (folder / "keys.json").read_bytes()
    said = keys(folder, "lock", env=BY_VARIABLE)
    assert (said.code, said.out) == (0, "keys.json is locked: 2 keys\n")
    assert locked(folder)
    assert (folder / "keys.json").stat().st_mode & 0o777 == 0o600
    assert keys(folder, "lock", env=BY_VARIABLE).code == 2
    assert keys(folder, "unlock", env={"CHRONICLE_PASSPHRASE": "wrong"}).code == 2
    assert locked(folder)
    assert keys(folder, "unlock", env=BY_VARIABLE).code == 0
    assert (folder / "keys.json").read_bytes() == before
    assert keys(folder, "unlock", env=BY_VARIABLE).code == 2


def test_a_locked_store_is_used_like_any_other(folder: Path) -> None:
    publics = keys(folder, "list").out
    assert keys(folder, "lock", env=BY_VARIABLE).code == 0
    assert keys(folder, "list", env=BY_VARIABLE).out == publics
    checked = keys(folder, "check", "--message", "action-encrypted.json", env=BY_VARIABLE)
    assert checked.code == 0
    assert ", locked\n" in checked.out
    new = keys(folder, "new", env=BY_VARIABLE)
    assert locked(folder)
    assert keys(folder, "list", env=BY_VARIABLE).out == publics + new.out
    (folder / "s.py").write_text("def sync(m):\n    return bool(m['contact']['email'])\n")
    args = ("replay", "--syncer", "s.py:sync", "--keys", "keys.json", "--require-decryption")
    assert run(*args, "--plain", "action-encrypted.json", cwd=folder, env=BY_VARIABLE).code == 0
    assert run(*args, "action-encrypted.json", cwd=folder).code == 2


def test_no_secret_no_keys(folder: Path) -> None:
    """One line that says what to do; nothing waits for an answer that cannot come."""
    assert keys(folder, "lock", env=BY_VARIABLE).code == 0
    for env in ({}, {"CHRONICLE_PASSPHRASE": "wrong"}):
        for action in ("list", "check", "new", "unlock"):
            said = keys(folder, action, env=env)
            assert (said.code, len(said.problems), said.out) == (2, 1, ""), action
    assert locked(folder)


def test_what_is_no_key_store_is_not_locked(folder: Path) -> None:
    content = (folder / "keys.json").read_text()
    (folder / "odd.json").write_text('{"a": "b"}')
    (folder / "odd.json").chmod(0o600)
    for file in ("odd.json", "missing.json", content):
        assert keys(folder, "lock", file, env=BY_VARIABLE).code == 2
    (folder / "keys.json").chmod(0o644)
    assert keys(folder, "lock", env=BY_VARIABLE).code == 2
    assert (folder / "odd.json").read_text() == '{"a": "b"}'


def test_a_passphrase_or_a_key_in_a_file(folder: Path) -> None:
    (folder / "pass.txt").write_text(CANARY + "\n")
    (folder / "encryption.key").write_text(b64encode(b"k" * 32).decode() + "\n")
    (folder / "short.key").write_text(b64encode(b"k" * 31).decode() + "\n")
    by_file = {"CHRONICLE_PASSPHRASE_FILE": "pass.txt"}
    by_key = {"CHRONICLE_ENCRYPT_KEY_FILE": "encryption.key"}
    assert keys(folder, "lock", env=by_file).code == 0
    assert keys(folder, "unlock", env=BY_VARIABLE).code == 0
    # The key is taken for new files if both are there, and each file asks for what it was encrypted with.
    assert keys(folder, "lock", env=by_key | BY_VARIABLE).code == 0
    assert b'"with":"key"' in (folder / "keys.json").read_bytes()
    assert keys(folder, "list", env=BY_VARIABLE).code == 2
    assert keys(folder, "list", env=by_key).code == 0
    short = keys(folder, "list", env={"CHRONICLE_ENCRYPT_KEY_FILE": "short.key"})
    assert (short.code, len(short.problems)) == (2, 1)


def asked(folder: Path, *args: str, answers: tuple[str, ...]) -> tuple[int, str]:
    """Run it at a terminal of its own; the exit code and all that was shown."""
    with at_terminal(folder, *args) as command:
        for number, answer in enumerate(answers, start=1):
            command.answer(answer, after=": ", times=number)
        return command.end()


def test_a_person_is_asked_twice_when_it_is_for_writing(folder: Path) -> None:
    """Asked for, unseen; two different answers lock nothing."""
    code, shown = asked(folder, "keys", "lock", answers=(CANARY, "other"))
    assert (code, locked(folder)) == (2, False)
    code, shown = asked(folder, "keys", "lock", answers=(CANARY, CANARY))
    assert (code, locked(folder)) == (0, True)
    assert CANARY not in shown
    code, shown = asked(folder, "keys", "list", answers=(CANARY,))
    assert code == 0
    assert CANARY not in shown
    assert keys(folder, "list", env=BY_VARIABLE).out.split() == shown.split()[-2:]
    code, shown = asked(folder, "keys", "list", answers=("wrong",))
    assert code == 2
    assert "does not decrypt keys.json" in shown
