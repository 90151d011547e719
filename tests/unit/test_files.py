"""Files that must be the operator's own: what is refused, and what the error says."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from chronicle.errors import SettingError
from chronicle.files import distrust, open_own
from support.files import as_root

APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND


def own(tmp_path: Path) -> Path:
    path = tmp_path / "own"
    path.touch(0o600)
    return path


def refused(path: Path, flags: int = os.O_RDONLY, **options: Any) -> SettingError:
    with pytest.raises(SettingError) as caught:
        os.close(open_own(str(path), flags, **options))
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("flags", [os.O_RDONLY, APPEND])
def test_Z8_our_own_private_file_is_opened(tmp_path: Path, flags: int) -> None:
    path = own(tmp_path)
    os.close(open_own(str(path), flags))
    path.chmod(0o400)
    os.close(open_own(str(path), os.O_RDONLY))


def test_Z8_a_new_file_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(open_own(str(tmp_path / "new"), APPEND))
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("mode", "said"), [(0o644, "read"), (0o640, "read"), (0o602, "write"), (0o620, "write")]
)
def test_Z8_what_others_can_use_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int, said: str
) -> None:
    path = own(tmp_path)
    path.chmod(mode)
    error = refused(path, kind="the note")
    assert str(error) == f"others can {said} the note {path}"
    assert error.remedy == f"chmod 600 {path}"


@as_root
def test_Z8_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = own(tmp_path)
    os.chown(path, 12345, -1)
    error = refused(path)
    assert "belongs to another user" in str(error)
    assert error.remedy.endswith(f"chown root {path}")


def test_Z8_links_are_not_followed(tmp_path: Path) -> None:
    """A link to a file of one's own, too: whoever made the link chose which one."""
    (tmp_path / "link").symlink_to(own(tmp_path))
    (tmp_path / "nowhere").symlink_to(tmp_path / "made")
    assert "symbolic link" in str(refused(tmp_path / "link"))
    assert "symbolic link" in str(refused(tmp_path / "nowhere", APPEND))
    assert not (tmp_path / "made").exists()


def test_Z8_a_second_name_is_refused_for_writing_only(tmp_path: Path) -> None:
    os.link(own(tmp_path), tmp_path / "other")
    assert "hard link" in str(refused(tmp_path / "other", APPEND))
    os.close(open_own(str(tmp_path / "other"), os.O_RDONLY))


def test_Z8_pipes_devices_folders_and_sockets_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        assert "is not a file" in str(refused(path))
    monkeypatch.chdir(tmp_path)  # a socket's path has a hundred bytes or so
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(OSError):
            open_own("socket", os.O_RDONLY)


def test_Z8_what_was_checked_is_what_is_read(tmp_path: Path) -> None:
    """The file is swapped after the check: the descriptor still is the one that was checked."""
    path = own(tmp_path)
    path.write_text("ours")
    descriptor = open_own(str(path), os.O_RDONLY)
    (tmp_path / "theirs").write_text("theirs")
    os.rename(tmp_path / "theirs", path)
    with open(descriptor) as file:
        assert file.read() == "ours"


def facts(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


def test_a_mounted_secret_may_be_roots_and_readable_by_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Kubernetes makes of a TLS secret; anything more is refused as elsewhere."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert distrust(facts(0o440, 0), "it", "it", mounted=True) is None
    assert distrust(facts(0o600, 1000), "it", "it", mounted=True) is None
    for mode, owner in ((0o444, 0), (0o660, 0), (0o440, 1000), (0o600, 1001)):
        assert distrust(facts(mode, owner), "it", "it", mounted=True), (oct(mode), owner)
    assert distrust(facts(0o440, 0), "it", "it")
