"""Where a run logs JSON, every line on stderr is JSON, from the first word to the last."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.cli import run
from support.crm import write_lines
from support.fixtures import StartChronicle

QUEUE = ("--queue", "q")
SYNC = ("--syncer", "crm:sync", "--schema", "json")
CRM = """
import logging
import warnings

logging.getLogger("httpx").info("GET /contacts/1: not shown")
logging.getLogger(__name__).info("imported")
warnings.warn("an old way to write it")


def sync(message):
    logging.getLogger("httpx").info("GET /contacts/2: shown when named")
    logging.getLogger(__name__).info("in work")
    logging.info("without a name")
    return message.get("do") != "no"
"""

SLOW = """
import time


def sync(message):
    time.sleep(0.02)
    return True
"""


@pytest.fixture(autouse=True)
def crm(tmp_path: Path) -> None:
    (tmp_path / "crm.py").write_text(CRM)


def publish(folder: Path, number: int) -> None:
    with LocalPublisher(Connector(f"local:{folder}/chronicle.db", "q")) as publisher:
        publisher.publish([Outgoing(b'{"do": "yes"}')] * number)


def lines(folder: Path, *args: str, **more: Any) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what each line of stderr says; fails if one is not JSON."""
    said = run(*args, cwd=folder, **more)
    told = [json.loads(line) for line in said.raw.splitlines()]
    assert all({"ts", "level", "event"} <= line.keys() for line in told)
    return said.code, told


@pytest.mark.parametrize(
    ("args", "text", "remedy"),
    [
        (("--nonsense",), "No such option '--nonsense'.", "see chronicle consume --help"),
        (("--concurrency", "0"), "--concurrency takes", "see chronicle consume --help"),
        (("--log-format", "xml"), "--log-format takes", "see chronicle consume --help"),
        (("--log-level", "warn"), "did you mean warning?", "see chronicle consume --help"),
        (("--syncer", "crm:sinc"), "no function 'sinc'", "did you mean crm:sync?"),
        (("--url", "ftp://host"), "", ""),
        (("--url", "local:nowhere.db"), "nowhere.db does not exist", "publish a message first"),
    ],
)
def test_what_is_wrong_at_the_start_is_one_line_with_its_remedy(
    tmp_path: Path, args: tuple[str, ...], text: str, remedy: str
) -> None:
    code, told = lines(tmp_path, "consume", *QUEUE, *SYNC, *args)
    last = told[-1]
    assert (code, last["event"], last["level"], last["exit_code"]) == (2, "command.failed", "error", 2)
    assert text in last["text"]
    assert remedy in last["remedy"]


def test_a_module_that_fails_to_import_has_its_traceback_in_the_line(tmp_path: Path) -> None:
    (tmp_path / "crm.py").write_text("1 / 0\n")
    code, told = lines(tmp_path, "consume", *QUEUE, *SYNC)
    assert code == 2
    assert "ZeroDivisionError" in told[-1]["trace"]
    assert "crm.py" in told[-1]["trace"]


def test_the_env_file_may_say_so(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_text("CHRONICLE_LOG_FORMAT=pretty\nCHRONICLE_NONSENSE=1\n")
    env.chmod(0o600)
    said = run("consume", *QUEUE, *SYNC, "--syncer", "crm:sinc", cwd=tmp_path)
    assert said.raw.startswith("chronicle: warning: ")
    env.write_text("CHRONICLE_LOG_FORMAT=json\nCHRONICLE_NONSENSE=1\n")
    _, told = lines(tmp_path, "consume", *QUEUE, *SYNC, "--syncer", "crm:sinc")
    assert told[0]["event"] == "command.warning"


def test_commands_that_log_no_run_speak_to_people(tmp_path: Path) -> None:
    said = run("publish", *QUEUE, "nowhere.json", cwd=tmp_path, env={"CHRONICLE_LOG_FORMAT": "json"})
    assert said.raw.splitlines()[-1].startswith("  remedy: ")


def test_the_syncer_logs_at_chronicles_level_and_others_log_warnings(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    _, told = lines(tmp_path, "consume", *QUEUE, *SYNC, "--until-empty")
    logged = [line["text"] for line in told if line["event"] == "log"]
    assert [text for text in logged if "an old way" not in text] == ["imported", "in work", "without a name"]
    assert any("an old way to write it" in text for text in logged)
    publish(tmp_path, 1)
    levels = "chronicle=warning,httpx=info"
    _, told = lines(tmp_path, "consume", *QUEUE, *SYNC, "--until-empty", "--log-level", levels)
    logged = [line["text"] for line in told if line.get("logger", "py.warnings") != "py.warnings"]
    assert logged == ["GET /contacts/1: not shown", "GET /contacts/2: shown when named"]


def test_replay_logs_the_code_it_ends_with(tmp_path: Path) -> None:
    write_lines(tmp_path / "m.jsonl", "yes", "no")
    code, told = lines(tmp_path, "replay", *SYNC, "m.jsonl")
    stopped = told[-1]
    assert (stopped["event"], stopped["level"]) == ("consumer.stopped", "error")
    assert (code, stopped["exit_code"]) == (1, 1)
    assert stopped["text"] == "stopped: the queue is empty; 1 message failed"
    write_lines(tmp_path / "m.jsonl", "yes")
    code, told = lines(tmp_path, "replay", *SYNC, "m.jsonl")
    assert (code, told[-1]["exit_code"], told[-1]["level"]) == (0, 0, "info")


def test_progress_is_logged_every_so_often(tmp_path: Path, chronicle: StartChronicle) -> None:
    publish(tmp_path, 3)
    process = chronicle("consume", *QUEUE, *SYNC, "--progress", "200ms", cwd=tmp_path)
    line = process.wait_for_line("consumer.progress")
    assert {"rate", "rate_overall", "depth", "oldest_ms", "inflight", "ack"} <= line.keys()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


class TestTerminal:
    """The live view on a real terminal."""

    def shown(self, folder: Path, chronicle: StartChronicle, *args: str, **env: str) -> str:
        publish(folder, 60)
        reading, writing = pty.openpty()
        try:
            command = ("consume", *QUEUE, *SYNC, "--until-empty", "--log-level", "error", *args)
            environment = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "", **env}
            process = chronicle(*command, cwd=folder, stderr=writing, env=environment)
            os.close(writing)
            parts = []
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    if select.select([reading], [], [], 0.5)[0]:
                        parts.append(os.read(reading, 65536))
                except OSError:  # nobody has it open any more
                    break
            assert process.wait() == 0
            return b"".join(parts).decode()
        finally:
            os.close(reading)

    @pytest.fixture(autouse=True)
    def slow(self, tmp_path: Path) -> None:
        (tmp_path / "crm.py").write_text(SLOW)

    def test_it_shows_what_waits_now_and_a_bar(self, tmp_path: Path, chronicle: StartChronicle) -> None:
        shown = self.shown(tmp_path, chronicle)
        assert re.search(r"queue +\d+ waiting now   60 at start", shown)
        assert re.search(r"progress [█░]{10,40} +\d+ %", shown)
        assert "consumer.progress" not in shown

    def test_no_color_and_no_unicode_are_respected(self, tmp_path: Path, chronicle: StartChronicle) -> None:
        shown = self.shown(tmp_path, chronicle, NO_COLOR="1", PYTHONIOENCODING="ascii", COLUMNS="40")
        assert shown.isascii()
        assert re.search(r"progress [#.]{4,40} +\d+ %", shown)
        assert not re.search(r"\x1b\[3\d", shown)
