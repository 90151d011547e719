"""The command line in a process of its own, for tests that need only what it said and how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from chronicle_cli.main import cli

PROGRAM: Final = "from chronicle_cli.__main__ import main; main()"
OURS: Final = ("CHRONICLE_", "PROCA_")


@dataclass(frozen=True, slots=True)
class Said:
    """What a finished command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def problems(self) -> list[str]:
        """The lines about what is wrong: not remedies, not warnings."""
        lines = [line for line in self.err.splitlines() if line.startswith("chronicle: ")]
        return [line for line in lines if not line.startswith("chronicle: warning: ")]


def run(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = "", program: str = PROGRAM
) -> Said:
    """Run `chronicle`, with none of our variables but those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=cwd,
        env=inherited | dict(env or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its path, the groups included."""
    waiting: list[tuple[str, click.Command]] = [("", cli)]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                waiting.append((f"{path} {name}".strip(), found))


def variables(param: click.Parameter) -> list[str]:
    """The variables a parameter is read from, the first one wins."""
    return [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
