"""A first signal, and the exit code of every command: 4 where something was left undone (X6)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import run
from support.fixtures import StartChronicle
from support.waiting import wait_for

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOBODY = ("--url", "amqp://127.0.0.1:1/", "--queue", "q")
SYNCER = """
import time
def slow(message):
    time.sleep(0.2)
    return True
def no(message):
    return False
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "crm.py").write_text(SYNCER)
    (tmp_path / "m.jsonl").write_text('{"a": 1}\n' * 200)
    return tmp_path


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    "command",
    [
        ("publish", "m.jsonl"),
        ("capture", "captured.jsonl"),
        ("declare",),
        ("dlq", "list"),
        ("dlq", "show"),
        ("dlq", "export", "dead.jsonl"),
        ("dlq", "drop", "--yes"),
        ("dlq", "redrive"),
    ],
)
def test_while_it_connects(
    folder: Path, chronicle: StartChronicle, command: tuple[str, ...], number: signal.Signals
) -> None:
    process = chronicle(*command, *NOBODY, cwd=folder)
    wait_for(lambda: "trying again" in process.stderr, 30, "a first try")
    process.signal(number)
    assert process.wait(30) == 4, process.stderr
    assert "chronicle: interrupted before" in process.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["crm.py", "m.jsonl"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_consumer_that_has_received_nothing_is_done(
    folder: Path, chronicle: StartChronicle, number: signal.Signals
) -> None:
    """D-11: it drains, and there is nothing to drain."""
    process = chronicle("consume", *NOBODY, "--syncer", "crm.py:slow", cwd=folder)
    wait_for(lambda: process.lines("connection.retry"), 30, "a first try")
    process.signal(number)
    assert process.wait(30) == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_replay_that_is_not_at_its_end(
    folder: Path, chronicle: StartChronicle, number: signal.Signals
) -> None:
    process = chronicle("replay", "--syncer", "crm.py:slow", "--schema", "json", "m.jsonl", cwd=folder)
    wait_for(lambda: process.lines("message.acked"), 30, "a first message")
    process.signal(number)
    assert process.wait(30) == 4
    assert "messages that are not in the table were not tried" in process.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_a_trial_of_dead_letters(folder: Path, chronicle: StartChronicle, number: signal.Signals) -> None:
    local = ("--url", "local:q.db", "--queue", "q")
    assert run("publish", *local, "m.jsonl", cwd=folder).code == 0
    dying = ("--syncer", "crm.py:no", "--schema", "json", "--on-failure", "dead-letter", "--until-empty")
    assert run("consume", *local, *dying, cwd=folder).code == 0
    process = chronicle(
        "dlq", "redrive", *local, "--verify", "crm.py:slow", "--yes", "--schema", "json", cwd=folder
    )
    wait_for(lambda: process.lines("message.acked"), 30, "a first message")
    process.signal(number)
    assert process.wait(30) == 4
    assert "interrupted: what was not tried is still in q.dlq" in process.stderr


STAY = """
import time
from chronicle_cli import main
def stay(_args):
    try:
        print("begun", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("first", flush=True)
        time.sleep(60)
main.run = stay
main.main()
"""


def test_a_second_signal_ends_it_at_once() -> None:
    """X5: also where the first has only interrupted something that takes its time to clean up."""
    with subprocess.Popen([sys.executable, "-c", STAY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


POOL = """
from concurrent.futures import ThreadPoolExecutor
from time import sleep
def leaves_work(message):
    ThreadPoolExecutor().submit(sleep, 600)
    return True
"""


def test_a_run_that_waits_for_what_its_syncer_left_running_says_so(
    folder: Path, chronicle: StartChronicle
) -> None:
    """D-17: Python does not end before such work does, and nobody would know why; a signal ends it."""
    (folder / "pool.py").write_text(POOL)
    (folder / "one.json").write_text("{}")
    arguments = ("replay", "--syncer", "pool.py:leaves_work", "--schema", "json", "one.json")
    process = chronicle(*arguments, cwd=folder)
    assert process.wait_for_line("command.note")["text"].startswith("done, and waiting for threads")
    process.signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


def version(changed: str) -> tuple[int, str]:
    """How `chronicle --version` ends, and what it says on stderr, with this done beforehand."""
    imports = "import atexit, os, sys, chronicle_cli.main as m"
    program = f"{imports}\n{changed}\nsys.argv[1:] = ['--version']\nm.main()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_a_moment_before_anybody_awaits_it(number: signal.Signals) -> None:
    """It is no traceback, and no other signal's exit code."""
    assert version(f"m._choose_words = lambda args: os.kill(os.getpid(), {int(number)})") == (4, "")


def test_while_it_is_imported(tmp_path: Path) -> None:
    """Ctrl-C ends it as any other program, and no traceback of ours is shown."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Meddler:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'chronicle_cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Meddler())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "chronicle_cli", "--version"],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("named", ["slow:sync", "./slow.py:sync"])
def test_while_the_syncer_is_imported(
    folder: Path, chronicle: StartChronicle, named: str, number: signal.Signals
) -> None:
    """Their module is not to blame, and nothing of it needs to be mended."""
    (folder / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    process = chronicle("consume", *NOBODY, "--syncer", named, cwd=folder)
    wait_for((folder / "begun").exists, 30, "its import")
    process.signal(number)
    assert process.wait(30) == 4, process.stderr
    assert process.words == "chronicle: interrupted before it was done\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_when_all_is_done(number: signal.Signals) -> None:
    """It ends the process, as it ends any other."""
    assert version(f"atexit.register(lambda: os.kill(os.getpid(), {int(number)}))") == (-number, "")
