"""Whose `.env` is obeyed, and what of it reaches the environment (Z13)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from chronicle.errors import SettingError
from chronicle_cli.dotenv_file import load_env
from support.cli import Said, run
from support.files import as_root

SYNCER: Final = """
import os
def sync(message):
    print("RAN", os.environ.get("CRM_TOKEN"), os.environ.get("SSLKEYLOGFILE"))
    return True
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "crm.py").write_text(SYNCER)
    (tmp_path / "m.json").write_text("{}")
    env = tmp_path / ".env"
    env.write_text(
        "CHRONICLE_SYNCER=crm.py:sync\nCHRONICLE_SCHEMA=json\nCRM_TOKEN=t\nSSLKEYLOGFILE=keys.log\n"
    )
    env.chmod(0o600)
    return tmp_path


def replay(folder: Path, *args: str, env: dict[str, str] | None = None) -> Said:
    return run(*args, "replay", "m.json", cwd=folder, env=env)


def refused(folder: Path, problem: str, remedy: str) -> None:
    said = replay(folder)
    assert (said.code, "RAN" in said.out) == (2, False)
    assert problem in said.problems[0]
    assert remedy in said.err


@as_root
def test_Z13_a_file_of_somebody_else_is_refused(folder: Path) -> None:
    """Whoever wrote it would have chosen the syncer that runs, and the host that gets the password."""
    os.chown(folder / ".env", 12345, -1)
    refused(folder, ".env belongs to another user", "chown root .env")


@pytest.mark.parametrize(
    ("mode", "can"), [(0o602, "write"), (0o620, "write"), (0o640, "read"), (0o604, "read")]
)
def test_Z13_a_file_that_others_can_use_is_refused(folder: Path, mode: int, can: str) -> None:
    (folder / ".env").chmod(mode)
    refused(folder, f"others can {can} .env", "chmod 600 .env")


def test_Z13_a_link_is_refused(folder: Path) -> None:
    (folder / ".env").rename(folder / "elsewhere.env")
    (folder / ".env").symlink_to("elsewhere.env")
    refused(folder, ".env is a symbolic link", "name the file itself")
    assert replay(folder, "--env-file", "elsewhere.env").code == 0


def test_Z13_a_pipe_is_refused_at_once(folder: Path) -> None:
    (folder / ".env").unlink()
    os.mkfifo(folder / ".env", 0o600)
    refused(folder, ".env is not a file", "name the file itself")


def test_Z13_only_our_own_variables_reach_the_environment(folder: Path) -> None:
    """SSLKEYLOGFILE in it made Python write the keys of every TLS connection to a file."""
    said = replay(folder)
    assert (said.code, "RAN None None" in said.out) == (0, True)
    assert "warning: .env: ignored CRM_TOKEN, SSLKEYLOGFILE: not chronicle's" in said.err


@pytest.mark.parametrize("by_flag", [True, False])
def test_Z13_what_the_operator_names_does_too(folder: Path, by_flag: bool) -> None:
    args = ("--env-allow", "CRM_TOKEN", "--env-allow", "CRM_URL") if by_flag else ()
    env = {} if by_flag else {"CHRONICLE_ENV_ALLOW": "CRM_TOKEN CRM_URL"}
    said = replay(folder, *args, env=env)
    assert (said.code, "RAN t None" in said.out) == (0, True)
    assert "ignored SSLKEYLOGFILE:" in said.err


def test_Z13_the_file_cannot_name_them_itself(folder: Path) -> None:
    with (folder / ".env").open("a") as file:
        file.write("CHRONICLE_ENV_ALLOW=CRM_TOKEN SSLKEYLOGFILE\n")
    assert "RAN None None" in replay(folder).out


def test_Z4_what_does_not_look_like_a_name_is_not_shown(tmp_path: Path) -> None:
    """The second line of a secret that was not quoted is read as a name."""
    path = tmp_path / "own.env"
    path.touch(0o600)
    path.write_text("PROCA_PASSWORD=first\nhunter22canary=\n")
    environ: dict[str, str] = {}
    assert "1 variable" in "".join(load_env(str(path), environ))
    assert "hunter22canary" not in "".join(load_env(str(path), environ))
    assert environ == {"PROCA_PASSWORD": "first"}
    path.chmod(0o644)
    with pytest.raises(SettingError):
        load_env(str(path), environ)
