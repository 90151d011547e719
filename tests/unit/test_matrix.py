"""What `make matrix` says when it cannot work, and what it never deletes; with stand-ins for the tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[1] / "matrix.sh"
# Enough for it to believe that it is root, may mount, and has a mirror.
TOOLS: Final = {
    "id": "echo 0",
    "git": "exit 0",
    "unshare": 'shift; exec "$@"',
    "apt-get": "echo http://mirror.invalid/debian Debian",
    "apt-config": "exit 0",
    "debootstrap": "echo E: no such release; exit 1",
}


def matrix(folder: Path, action: str = "run", **tools: str) -> subprocess.CompletedProcess[str]:
    """Run the script with these stand-ins, its folder being `folder/matrix`."""
    bins = folder / "bin"
    bins.mkdir()
    for name, does in (TOOLS | {name.replace("_", "-"): does for name, does in tools.items()}).items():
        (bins / name).write_text(f"#!/bin/sh\n{does}\n")
        (bins / name).chmod(0o755)
    path = f"{bins}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return subprocess.run(
        ["sh", SCRIPT, action],
        env={"PATH": path, "MATRIX": str(folder / "matrix")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("tools", "problem", "remedy"),
    [
        ({"id": "echo 1000"}, "only root", "sudo make matrix"),
        ({"git": "exit 128"}, "git", "in a git checkout"),
        ({"unshare": "exit 1"}, "Nothing can be mounted", "SYS_ADMIN"),
        ({"apt_get": "exit 0"}, "no Debian mirror", "make matrix MIRROR=http://"),
        ({}, "E: no such release", "make matrix MIRROR=http://"),
    ],
    ids=["not root", "no checkout", "no mounts", "no mirror", "a mirror without it"],
)
def test_what_it_cannot_do_is_said_with_a_remedy(
    tmp_path: Path, tools: Mapping[str, str], problem: str, remedy: str
) -> None:
    said = matrix(tmp_path, **tools)
    assert said.returncode == 1
    assert problem in said.stderr
    assert remedy in said.stderr
    assert not (tmp_path / "matrix" / "trixie").exists()


def test_the_mirror_is_the_one_of_apt(tmp_path: Path) -> None:
    """None stands in the script; a mirror of something else is passed over."""
    sources = "echo http://else.invalid/x Other; echo http://mirror.invalid/debian Debian"
    matrix(tmp_path, apt_get=sources, debootstrap='echo "$@"; exit 1')
    asked = (tmp_path / "matrix" / "debootstrap.log").read_text()
    assert asked.split()[-1] == "http://mirror.invalid/debian"
    assert "://" not in SCRIPT.read_text().replace("MIRROR=http://…", "")


def test_a_failed_start_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "matrix" / "trixie.half" / "usr"
    left.mkdir(parents=True)
    matrix(tmp_path)
    assert not left.exists()


def test_a_folder_of_other_packages_is_made_again_and_kept_until_then(tmp_path: Path) -> None:
    """One that was made before a package was added lacks it."""
    old = tmp_path / "matrix" / "trixie" / "usr"
    old.mkdir(parents=True)
    (old.parent / "chronicle.packages").write_text("rabbitmq-server")
    assert "E: no such release" in matrix(tmp_path).stderr
    assert old.exists()


def test_what_is_removed_is_its_own(tmp_path: Path) -> None:
    """A folder of the operator's may hold other things."""
    folder = tmp_path / "matrix"
    (folder / "trixie" / "usr").mkdir(parents=True)
    (folder / "thesis").touch()
    assert matrix(tmp_path, "remove").returncode == 0
    assert [path.name for path in folder.iterdir()] == ["thesis"]


def test_nothing_is_deleted_beneath_a_mount(tmp_path: Path) -> None:
    """Beneath it are files of others, such as the machine's own /dev."""
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "--mount", "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    target = tmp_path / "matrix" / "trixie" / "dev"
    target.mkdir(parents=True)
    mounted = ("sh", "-c", 'mount --bind "$1" "$2" && exec sh "$3" remove', "sh", precious, target, SCRIPT)
    done = subprocess.run(
        [unshare, "--mount", *mounted],
        env={"PATH": os.environ.get("PATH", os.defpath), "MATRIX": str(tmp_path / "matrix")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "mounted beneath" in done.stderr
    assert (precious / "file").exists()
