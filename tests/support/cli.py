"""The command line in a process of its own, for tests that need only what it said and how it ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import click

from chronicle_cli.main import cli
from support import forking

PROGRAM: Final = "from chronicle_cli.__main__ import main; main()"
OURS: Final = ("CHRONICLE_", "PROCA_")
TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a finished command printed, and its exit code.

    `err` has the command's own words (problems, remedies, warnings, notes) as a person at a terminal reads
    them, also where they were JSON (`raw`).
    """

    code: int
    out: str
    raw: str

    @property
    def err(self) -> str:
        return "".join(map(for_people, self.raw.splitlines(keepends=True)))

    @property
    def problems(self) -> list[str]:
        """The lines about what is wrong: not remedies, not warnings."""
        lines = [line for line in self.err.splitlines() if line.startswith("chronicle: ")]
        return [line for line in lines if not line.startswith("chronicle: warning: ")]


def for_people(line: str) -> str:
    """A line of stderr; one of a command's own, as it is at a terminal."""
    if not line.startswith('{"ts":'):
        return line
    said = json.loads(line)
    text, remedy = said.get("text"), said.get("remedy")
    match said["event"]:
        case "command.failed":
            told = [*said.get("trace", "").splitlines(), f"chronicle: {text}"]
            told += [f"  remedy: {remedy}"] if remedy else []
            return "".join(f"{row}\n" for row in told)
        case "command.warning":
            return f"chronicle: warning: {text}\n"
        case "command.note":
            return f"chronicle: {text}\n"
    return line


def run(
    *args: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    program: str = PROGRAM,
    fresh: bool = False,
) -> Said:
    """Run `chronicle`, with none of our variables but those given.

    It runs in a fork of an interpreter that has imported everything, for a quarter of the time; unless
    it is told to start a `fresh` one, or another program or its environment asks for that.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environment = inherited | dict(env or {})
    if program == PROGRAM and not fresh and not _concerns_interpreter(environment):
        return _forking().run(args, cwd, environment, stdin)
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def _concerns_interpreter(environment: Mapping[str, str]) -> bool:
    """Whether it says something to Python or the C library that they hear only when they start."""
    return any(
        environment.get(name) != os.environ.get(name)
        for name in environment.keys() | os.environ.keys()
        if name.startswith(("PYTHON", "LC_", "LANG", "TZ"))
    )


@cache
def _forking() -> _Forking:
    return _Forking()


class _Forking:
    """The interpreter that forks for commands (see `support.forking`); it ends with this process."""

    def __init__(self) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        serve = f"fork_for_each(socket.socket(fileno={asked.fileno()}))"
        with asked:
            self._interpreter = subprocess.Popen(
                [sys.executable, "-c", f"{Path(forking.__file__).read_text()}\n{serve}\n{PROGRAM}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[asked.fileno()],
            )

    def run(self, args: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str) -> Said:
        message = json.dumps({"args": args, "cwd": str(cwd), "env": dict(env)}).encode()
        told, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (reading, feed), (out, printing), (err, complaining) = os.pipe(), os.pipe(), os.pipe()
        theirs = (telling.detach(), reading, printing, complaining)
        socket.send_fds(self._asking, [message], theirs)
        for file in theirs:
            os.close(file)
        with told, ThreadPoolExecutor(3) as elsewhere:
            elsewhere.submit(_feed, feed, stdin)
            printed, complained = elsewhere.submit(_read, out), elsewhere.submit(_read, err)
            told.settimeout(TIMEOUT)
            pid = int(told.recv(100) or "0")
            assert pid, "the interpreter that forks for commands has ended; its words are in the stderr above"
            try:
                code = int(told.recv(100))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            return Said(code, printed.result(), complained.result())


def _feed(file: int, text: str) -> None:
    with suppress(BrokenPipeError), open(file, "w") as stream:
        stream.write(text)


def _read(file: int) -> str:
    with open(file) as stream:
        return stream.read()


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
