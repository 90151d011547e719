"""What was encrypted is expected to be encrypted; and what may encrypt it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from chronicle.captures.file import open_capture
from chronicle.captures.sources import read_messages
from chronicle.core.delivery import Delivery
from chronicle.core.encryption import Secret, SecretKind
from chronicle.core.record import dump, to_record
from chronicle.errors import KeyStoreError, SettingError
from chronicle.proca.keystore import KeyStore, add_key
from chronicle_cli.passphrase import PassphraseSource
from support.cli import run
from support.samples import FOLDER

LONG: Final = "hunter22-canary"
SET: Final = {"CHRONICLE_PASSPHRASE": LONG}
RECORD: Final = to_record(Delivery(b'{"n": 1}', queue="q", transport="rabbitmq"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plain capture where an encrypted one was, and a key store that is not locked any more."""
    (tmp_path / "handled.encrypted").write_bytes(dump(RECORD) + b"\n")
    shutil.copy(FOLDER / "keys.json", tmp_path)
    (tmp_path / "keys.json").chmod(0o600)
    return tmp_path


def test_a_plain_file_in_the_place_of_an_encrypted_one_is_refused(folder: Path) -> None:
    """Whoever cannot read the file could still have replaced it by messages of their own."""
    args = ("publish", "--queue", "q", "--dry-run", "handled.encrypted")
    said = run(*args, cwd=folder, env=SET)
    assert (said.code, said.out) == (2, "")
    assert "handled.encrypted is not encrypted, and it is expected to be" in said.problems[-1]
    assert run(*args, "--plain", cwd=folder, env=SET).code == 0
    assert run(*args, cwd=folder, env=SET | {"CHRONICLE_ENCRYPT": "false"}).code == 0
    assert run(*args, cwd=folder).code == 0
    assert run(*args, cwd=folder, env={"CHRONICLE_ENCRYPT": "true"}).code == 2
    replayed = run("replay", "--syncer", "s.py:sync", "handled.encrypted", cwd=folder, env=SET)
    assert "is not encrypted, and it is expected to be" in replayed.problems[0]


def test_standard_input_may_be_plain(folder: Path) -> None:
    """A pipe is not a file that somebody replaced."""
    said = run("publish", "--queue", "q", "--dry-run", "-", cwd=folder, env=SET, stdin='{"n": 1}\n')
    assert (said.code, said.out[:9]) == (0, "1 message")


def test_an_empty_file_and_a_pipe_are_no_way_around(folder: Path) -> None:
    (folder / "empty.jsonl").touch()
    for name in ("empty.jsonl", "handled.encrypted"):
        with pytest.raises(SettingError, match="expected to be"):
            list(read_messages([str(folder / name)], "q", encrypted=True))


def test_a_key_store_that_is_not_locked_any_more_is_refused(folder: Path) -> None:
    store = str(folder / "keys.json")
    expecting = PassphraseSource(SET)
    with pytest.raises(KeyStoreError, match="is not locked, and it is expected to be") as caught:
        KeyStore.load(store, expecting.unlock)
    assert "keys lock" in caught.value.remedy
    with pytest.raises(KeyStoreError, match="is not locked"):
        add_key(store, expecting.unlock, expecting.lock)
    assert len(KeyStore.load(store, PassphraseSource({}).unlock)) == 2
    assert len(KeyStore.load(store, PassphraseSource(SET | {"CHRONICLE_ENCRYPT": "0"}).unlock)) == 2
    # Text comes from the same place as the secret.
    assert len(KeyStore.load((folder / "keys.json").read_text(), expecting.unlock)) == 2
    assert run("keys", "lock", cwd=folder, env=SET).code == 0
    assert len(KeyStore.load(store, expecting.unlock)) == 2


def test_with_a_secret_everything_new_is_encrypted(folder: Path) -> None:
    assert run("keys", "new", "new.json", cwd=folder, env=SET).code == 0
    assert (folder / "new.json").read_bytes().startswith(b'{"sealed":')
    (folder / "m.json").write_text(json.dumps({"n": 1}))
    assert run("publish", "--queue", "q", "m.json", cwd=folder).code == 0
    assert run("capture", "--queue", "q", "c.encrypted", cwd=folder, env=SET).code == 0
    assert (folder / "c.encrypted").read_bytes().startswith(b'{"sealed":')
    assert run("capture", "--queue", "q", "--no-encrypt", "c.jsonl", cwd=folder, env=SET).code == 0
    assert b'"base64"' in (folder / "c.jsonl").read_bytes()


def test_a_word_that_is_neither_yes_nor_no(folder: Path) -> None:
    with pytest.raises(SettingError, match="CHRONICLE_ENCRYPT is neither true nor false"):
        PassphraseSource({"CHRONICLE_ENCRYPT": "perhaps"})


@pytest.mark.parametrize("short", ["x", "hunter22", "elevenchars", "żółtożółty"])
def test_a_short_passphrase_encrypts_nothing(tmp_path: Path, short: str) -> None:
    """Whoever has the file can try passphrases as long as they like."""
    by_variable = PassphraseSource({"CHRONICLE_PASSPHRASE": short})
    at_prompt = PassphraseSource({}, lambda _: short)
    for source in (by_variable, at_prompt):
        with pytest.raises(SettingError, match="shorter than 12 characters") as caught:
            open_capture(str(tmp_path / "c"), source.to_encrypt)
        assert "four random words" in caught.value.remedy
        assert short not in f"{caught.value!r} {caught.value.remedy}"
    assert os.listdir(tmp_path) == []
    assert PassphraseSource({"CHRONICLE_PASSPHRASE": LONG}).to_encrypt().kind is SecretKind.PASSPHRASE


def test_what_a_short_passphrase_once_encrypted_can_be_read() -> None:
    source = PassphraseSource({"CHRONICLE_PASSPHRASE": "x"})
    assert source.to_decrypt(SecretKind.PASSPHRASE, "f") == Secret(SecretKind.PASSPHRASE, b"x")
