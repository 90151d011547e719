"""The fixtures that tests share: a broker, and the real command.

Rule: nothing starts before the first test that asks for it, and tests of the pure part never ask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from chronicle.telemetry.redaction import KNOWN
from support.fixtures import FOREIGN, Broker, StartChronicle
from support.process import ChronicleProcess
from support.queues import Queues
from support.rabbit import RabbitNode

pytest_plugins = ["support.evidence", "support.scheduling", "support.watchdog"]

BROKERS: Final = frozenset({"rabbit"})
UNIT: Final = Path(__file__).parent / "unit"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if UNIT in item.path.parents and BROKERS & set(getattr(item, "fixturenames", ())):
            raise pytest.UsageError(f"{item.nodeid} is a unit test and asks for a broker")


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without known secrets: one test's password is another one's queue name."""
    monkeypatch.setattr(KNOWN, "_forms", ())


@pytest.fixture(scope="session")
def _nodes() -> Iterator[list[RabbitNode]]:
    """The RabbitMQ of this process, once a test has asked for it."""
    nodes: list[RabbitNode] = []
    yield nodes
    for node in nodes:
        node.close()


@pytest.fixture
def rabbit(_nodes: list[RabbitNode]) -> Iterator[Broker]:
    """A RabbitMQ without queues, all for this test: it may stop, freeze and kill the node.

    Whoever does so brings it back; if a test fails on the way, the next one gets another node.
    """
    url = os.environ.get(FOREIGN)
    if url:
        queues = Queues(url)
        yield Broker(url, queues, None)
        queues.clear()
        return
    if not (_nodes and _nodes[-1].is_ready):
        while _nodes:
            _nodes.pop().close()
        _nodes.append(RabbitNode(tls=True))
        _nodes[-1].start()
    node = _nodes[-1]
    yield Broker(node.url, node.queues, node)
    if node.is_ready:
        node.delete_queues()


@pytest.fixture
def chronicle(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[StartChronicle]:
    """Starts the real command, in `tmp_path` unless told; what still runs at the end is killed."""
    started: list[ChronicleProcess] = []

    def start(
        *args: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        stderr: int | None = None,
    ) -> ChronicleProcess:
        output = tmp_path_factory.mktemp("chronicle")
        started.append(
            ChronicleProcess(*args, cwd=cwd or tmp_path, output=output, env=env, stdin=stdin, stderr=stderr)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
