"""A person's own error stands alone when their class cannot be made, entered or left: only their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from support import samples
from support.cli import Said, run

QUEUE: Final = ("--url", "local:q.db", "--queue", "q")
PLAIN: Final = """
class Crm:
    def __init__(self):
        fail("made")

    def __enter__(self):
        fail("entered")

    def __exit__(self, *error):
        fail("left")

    def __call__(self, message):
        fail("called")
        return True
"""
ASYNC: Final = (
    PLAIN.replace("def __enter__", "async def __aenter__")
    .replace("def __exit__", "async def __aexit__")
    .replace("def __call__", "async def __call__")
)
FAIL: Final = """
import os


def fail(at):
    if at in os.environ["FAIL_AT"]:
        raise LookupError(f"broken when {at}, jane@example.org")
"""


@pytest.fixture(params=[PLAIN, ASYNC], ids=["plain", "async"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "crm.py").write_text(FAIL + request.param)
    assert run("publish", *QUEUE, str(samples.FOLDER / "action-plain.json"), cwd=tmp_path).code == 0
    return tmp_path


def consume(folder: Path, at: str, queue: tuple[str, ...] = QUEUE) -> Said:
    arguments = ("consume", *queue, "--syncer", "crm.py:Crm", "--until-empty", "--log-format", "json")
    said = run(*arguments, cwd=folder, env={"FAIL_AT": at})
    assert "jane" not in said.err
    for other in ("/chronicle/", "/asyncio/", "chronicle_cli", "made at run time"):
        assert other not in said.err
    return said


def fatal(said: Said) -> list[list[str]]:
    """The tracebacks of what went wrong, line by line."""
    found: list[dict[str, Any]] = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    return [line["trace"].splitlines() for line in found if line["event"] == "syncer.fatal"]


@pytest.mark.parametrize("at", ["made", "entered"])
def test_at_the_start(folder: Path, at: str) -> None:
    said = consume(folder, at)
    assert said.code == 2
    assert f"the syncer crm.py:Crm did not start: LookupError: broken when {at}, ‹email›" in said.err
    assert said.err.count("LookupError: broken when") == 2  # the traceback's last line, and the problem
    assert said.err.count("File ") == 2  # where it was raised, and who called that
    assert "which was the cause of" not in said.err
    assert "while it was handled" not in said.err


def test_at_the_end(folder: Path) -> None:
    said = consume(folder, "left")
    assert said.code == 1
    (trace,) = fatal(said)
    assert [line for line in trace if "File" in line] == [
        line for line in trace if f"{folder}/crm.py" in line
    ]
    assert len(trace) == 5
    assert trace[-1] == "LookupError: ‹withheld›"  # it may quote any message


def test_at_the_end_after_another_failure_each_is_told_by_itself(folder: Path) -> None:
    said = consume(folder, "called left")
    assert said.code == 1
    called, left = fatal(said)
    assert called[-1].startswith("LookupError: broken when called, ‹")
    assert (len(left), left[-1]) == (5, "LookupError: ‹withheld›")


def test_at_the_end_of_a_run_that_was_refused_each_is_told_by_itself(folder: Path) -> None:
    """The error that chronicle was handling meanwhile is its own line, with its remedy."""
    said = consume(folder, "left", ("--url", "local:q.db", "--queue", "nosuch"))
    assert said.code == 2
    (trace,) = fatal(said)
    assert (len(trace), trace[-1]) == (5, "LookupError: ‹withheld›")
    assert said.err.count("has no queue 'nosuch'") == 1
