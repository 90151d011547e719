"""A command at a terminal of its own, and a person who answers what it asks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.cli import PROGRAM
from support.waiting import wait_for

PATIENCE: Final = 60.0


class AtTerminal:
    """The command, as far as it has come."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self._process = process
        self._screen = screen
        self._shown = b""

    def answer(self, answer: str, *, after: str, times: int = 1) -> None:
        """Type this when the command has shown that so often."""
        self.wait_for(after, times)
        os.write(self._screen, answer.encode() + b"\n")

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_for(lambda: self._shown.count(text.encode()) >= times or self._read_on(), PATIENCE, repr(text))

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was shown."""
        wait_for(self._read_on, PATIENCE, "the end")
        return self._process.wait(PATIENCE), self._shown.decode().replace("\r\n", "\n")

    def _read_on(self) -> bool:
        """Take in what is shown; whether that was the last."""
        try:
            more = os.read(self._screen, 1024)
        except OSError:  # the other side is closed
            more = b""
        self._shown += more
        return not more


@contextmanager
def at_terminal(folder: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[AtTerminal]:
    """Run `chronicle` with none of our variables but those given; it ends with the block."""
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CHRONICLE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *args], cwd=folder, env=inherited | dict(env or {}),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield AtTerminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
