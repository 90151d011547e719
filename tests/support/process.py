"""The real command in a process of its own, as a person, cron or a container would run it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from support.cli import for_people
from support.waiting import wait_for

COMMAND: Final = Path(sys.executable).parent / "chronicle"
OURS: Final = ("CHRONICLE_", "PROCA_")


class ChronicleProcess:
    """A running `chronicle`, with what it prints kept in files that can be read meanwhile.

    A test that gives it a stderr of its own reads that itself. Its environment is the test's, without any
    variable of ours, and with those of `env`.
    """

    def __init__(
        self,
        *args: str,
        cwd: Path,
        output: Path,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = args
        self.output = output
        self._stdout = output / "stdout"
        self._stderr = output / "stderr"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        feed = output / "stdin"
        feed.write_bytes(stdin or b"")
        with feed.open("rb") as reading, self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [COMMAND, *args],
                cwd=cwd,
                env=inherited | dict(env or {}),
                stdin=reading,
                stdout=out,
                stderr=err if stderr is None else stderr,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def stdout(self) -> str:
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    @property
    def words(self) -> str:
        """What the command itself said on stderr, as a person at a terminal reads it (see `support.cli`)."""
        return "".join(map(for_people, self.stderr.splitlines(keepends=True)))

    @property
    def printed(self) -> bytes:
        """Everything printed so far, byte for byte."""
        return self._stdout.read_bytes() + self._stderr.read_bytes()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """The JSON log lines so far, or those of one event; a line half written is left for later."""
        found = [
            line
            for text in self.stderr.splitlines(keepends=True)
            if text.endswith("\n") and (line := _parsed(text)) is not None
        ]
        return [line for line in found if event is None or line.get("event") == event]

    def wait_for_line(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """The first log line of this event; fails at once when the process has ended without it."""

        def seen() -> list[dict[str, Any]]:
            ended = not self.running
            found = self.lines(event)
            if ended and not found:
                raise AssertionError(f"{self} ended with {self.returncode} before {event}:\n{self.stderr}")
            return found

        return wait_for(seen, timeout, f"{event} of {self}")[0]

    def signal(self, number: int) -> None:
        """Send a signal to the command itself, not to its children."""
        self._process.send_signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        """The exit code; a process still running at the deadline is killed and the test fails."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self} still ran after {timeout:g} s; it said:\n{self.stderr}") from None

    def kill(self) -> None:
        """Kill the command and whatever it started."""
        # A frozen or ended leader may leave children: the whole session is ours.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __str__(self) -> str:
        return f"chronicle {self.args[0] if self.args else ''}".strip()


def _parsed(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


COMMANDS: Final = pytest.StashKey[list[ChronicleProcess]]()  # those that a test has started
