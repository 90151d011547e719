"""`chronicle keys`: never a private key, never personal data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.cli import Said, run

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The samples, with the key store as private as it must be (git does not keep modes)."""
    for sample in SAMPLES.glob("*.json"):
        shutil.copy(sample, tmp_path)
    (tmp_path / "keys.json").chmod(0o600)
    return tmp_path


def keys(folder: Path, *args: str, **environ: str) -> Said:
    """Run it, and see that nothing secret came out, whatever happened."""
    said = run("keys", *args, cwd=folder, env=environ)
    shown = said.out + said.err
    hidden = [entry["private"] for entry in json.loads((folder / "keys.json").read_text()).values()]
    expected = json.loads((folder / "expected-decrypted.json").read_text())
    hidden += [text for text in leaves(expected) if len(text) > 3]
    assert not [secret for secret in hidden if secret in shown]
    return said


def leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in leaves(item)]
    return [value] if isinstance(value, str) else []


def test_new_makes_a_private_store_and_keeps_what_is_in_it(folder: Path) -> None:
    before = keys(folder, "list").out.split()
    public = keys(folder, "new").out.strip()
    assert keys(folder, "list").out.split() == [*before, public]
    fresh = keys(folder, "new", "fresh.json")
    assert fresh.code == 0
    assert (folder / "fresh.json").stat().st_mode & 0o777 == 0o600
    assert keys(folder, "list", "fresh.json").out == fresh.out


def test_new_never_prints_the_private_key(folder: Path) -> None:
    said = keys(folder, "new", "fresh.json")
    [entry] = json.loads((folder / "fresh.json").read_text()).values()
    assert entry["private"] not in said.out + said.err


def test_check_tells_mode_owner_and_keys(folder: Path) -> None:
    said = keys(folder, "check")
    assert said.code == 0
    assert "mode 600" in said.out
    assert "keys: 2" in said.out
    assert said.out.count("valid") == 2


def test_a_store_others_can_read_is_refused(folder: Path) -> None:
    """Z8: exit 2 and the remedy."""
    (folder / "keys.json").chmod(0o644)
    for action in ("list", "check", "new"):
        said = keys(folder, action)
        assert said.code == 2
        assert "chmod 600 keys.json" in said.err


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ("action-encrypted.json", 0, "yes, key"),
        ("action-encrypted-rotated-key.json", 0, "yes, key"),
        ("action-encrypted-unknown-key.json", 1, "not in the store"),
        ("action-encrypted-damaged.json", 1, "damaged"),
        ("action-plain.json", 0, "not sealed"),
        ("event-email-status.json", 0, "message: "),
    ],
)
def test_check_says_whether_a_message_can_be_opened(folder: Path, message: str, code: int, says: str) -> None:
    """Yes or no and which key; never the data (Z5)."""
    said = keys(folder, "check", "--message", message)
    assert (said.code, said.err) == (code, "")
    assert says in said.out.splitlines()[-1]


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ("action-encrypted.json", 0, "yes, key"),
        ("action-encrypted-stranger.json", 1, "not a pinned sign key"),
    ],
)
def test_check_shows_the_pinned_sign_keys(folder: Path, message: str, code: int, says: str) -> None:
    signer = "Joi1qonPAT0JOg4ubED7WhOpZ45oq4XXuaawt10a5Qk"
    for said in (
        keys(folder, "check", "--sign-key", signer, "--message", message),
        keys(folder, "check", "--message", message, CHRONICLE_SIGN_KEY=signer),
    ):
        assert said.code == code
        assert f"{signer}  pinned sign key" in said.out
        assert says in said.out.splitlines()[-1]


def test_check_survives_any_message(folder: Path) -> None:
    for content in ("not json", "[]", "", '{"personalInfo": 5}', '{"personalInfo": {"encryptKey": 7}}'):
        (folder / "odd.json").write_text(content)
        said = keys(folder, "check", "--message", "odd.json")
        assert said.code in (1, 2)
        assert "defect" not in said.err


def test_the_store_may_come_by_variable(folder: Path) -> None:
    content = (folder / "keys.json").read_text()
    shutil.copy(folder / "keys.json", folder / "elsewhere.json")
    (folder / "elsewhere.json").chmod(0o600)
    assert len(keys(folder, "list", CHRONICLE_KEYS="elsewhere.json").out.split()) == 2
    assert len(keys(folder, "list", CHRONICLE_KEYS=content).out.split()) == 2
    assert keys(folder, "new", CHRONICLE_KEYS=content).code == 2
