"""What a failing test leaves behind: the seed of its luck, what its commands printed, and the logs of the
brokers that ran.

Rule 1: one seed for a run, new every time unless CHRONICLE_TEST_SEED names it; what a test draws from it
depends on the test alone, not on those that ran before it.
Rule 2: logs are copied the moment a test fails, because a broker's folder goes with the broker. Of
several brokers, those that have written nothing since the test began are left out.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from support.kafka_server import KafkaServer
from support.process import COMMANDS, ChronicleProcess
from support.rabbit import RabbitNode
from support.redis_server import RedisServer

VARIABLE: Final = "CHRONICLE_TEST_SEED"
KEPT: Final = Path(".failed-tests")
Server: TypeAlias = RabbitNode | RedisServer | KafkaServer
WRITTEN: Final = pytest.StashKey[dict[Server, int]]()  # bytes in the log of each when the test began


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that starts the others, or runs alone
        os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(10**6)))
        if not config.option.lf:  # those that failed are tried again: what they left is wanted
            shutil.rmtree(config.rootpath / KEPT, ignore_errors=True)
    # Hypothesis draws from the same seed, unless it was told another.
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ[VARIABLE]


@pytest.fixture
def luck(request: pytest.FixtureRequest) -> random.Random:
    """Chance that can be repeated: run again with the seed that the failure names."""
    return random.Random(f"{os.environ[VARIABLE]} {request.node.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("seed", f"{VARIABLE}={os.environ[VARIABLE]} draws the same again"))
        kept = item.config.rootpath / KEPT / re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")[-120:]
        commands = item.stash.get(COMMANDS, None) or ()
        for number, command in enumerate(commands, 1):
            keep_output(kept / f"command-{number}", command)
        before = item.stash.get(WRITTEN, {})
        for server in _servers():
            if before.get(server) == _written(server):
                continue
            folder = keep_logs(kept / server.folder.name, server)
            report.sections.append((f"broker log, kept in {folder}", server.log_tail()))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[WRITTEN] = {server: _written(server) for server in _servers()}


def _servers() -> list[Server]:
    return [*RabbitNode.running_here, *RedisServer.running_here, *KafkaServer.running_here]


def _written(server: Server) -> int:
    return sum(file.stat().st_size for file in server.logs())


def keep_logs(folder: Path, server: Server) -> Path:
    """Copy what the server has written so far to this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in server.logs():
        shutil.copy(file, folder)
    return folder


def keep_output(folder: Path, command: ChronicleProcess) -> None:
    """Copy what the command was told and has printed so far to this folder."""
    shutil.copytree(command.output, folder, dirs_exist_ok=True)
    (folder / "arguments").write_text("\n".join(command.args))
