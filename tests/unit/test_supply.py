"""What gets installed: no version with a known hole, nothing that was not checked against the lock (Z15)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

HOME: Final = Path(__file__).parents[2]
# The first release without a hole that was made public.
MENDED: Final = {
    "cryptography": (46, 0, 7),  # CVE-2026-39892: a buffer overflow
    "orjson": (3, 11, 6),  # CVE-2025-67221: unbounded recursion
    "pynacl": (1, 6, 2),  # CVE-2025-69277: libsodium
}
CHECKED: Final = ("--require-hashes", "--no-index", "--no-deps")


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", sorted(MENDED))
def test_Z15_a_floor_is_not_below_a_security_fix(name: str) -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    floors = dict(re.findall(r"([a-z-]+)>=([\d.]+)", " ".join(project["dependencies"])))
    locked = re.search(rf"^{name}==([\d.]+)", (HOME / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert MENDED[name] <= version(floors[name]) <= version(locked[1])


def test_Z15_the_pages_install_by_the_lock() -> None:
    """Every command that would fetch something has the hashes, or fetches nothing."""
    pages = [HOME / "README.md", *(HOME / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages).replace("\\\n", "")
    commands = re.findall(r"\bpip (?:install|download|wheel)\b[^\n`&]*", text)
    assert len(commands) >= 5
    assert [command for command in commands if not any(option in command for option in CHECKED)] == []
