"""The fixtures that tests share: brokers, and the real command.

Rule: nothing starts before the first test that asks for it, and tests of the pure part never ask.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.telemetry.redaction import KNOWN
from support.fixtures import (
    FOREIGN,
    KAFKA_USERS,
    Broker,
    Kafka,
    StartChronicle,
    StartCluster,
    StartKafka,
    StartRedis,
    StartSentinels,
    skip_without_kafka,
)
from support.kafka_mock import KafkaMock
from support.kafka_server import KafkaServer, why_not
from support.kafka_trio import KafkaTrio
from support.process import COMMANDS, ChronicleProcess
from support.queues import Queues
from support.rabbit import RabbitNode
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer

pytest_plugins = ["support.evidence", "support.scheduling", "support.watchdog"]

# A shell that runs the tests in the background ignores these, and every command they start would inherit it.
for _ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.default_int_handler if _ignored is signal.SIGINT else signal.SIG_DFL)

BROKERS: Final = frozenset(
    {
        "rabbit", "redis_server", "private_redis",
        "redis_sentinels", "private_sentinels", "redis_cluster", "private_cluster",
        "kafka", "private_kafka", "kafka_trio",
    }
)  # fmt: skip
UNIT: Final = Path(__file__).parent / "unit"


def pytest_report_header() -> str:
    problem = why_not()
    return f"kafka: librdkafka's mock, because {problem}" if problem else "kafka: a real one"


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


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for the whole run, with a port for TLS; tests keep apart by the names of streams."""
    with RedisServer(tls=True) as server:
        yield server.start()


@pytest.fixture(scope="session")
def redis_sentinels() -> Iterator[Sentinels]:
    """One master with its sentinels for the whole run; nobody makes it fail over."""
    with Sentinels() as sentinels:
        yield sentinels.start()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[Cluster]:
    """One cluster for the whole run; nobody breaks it."""
    with Cluster() as cluster:
        yield cluster.start()


@pytest.fixture(scope="module")
def private_redis() -> Iterator[StartRedis]:
    """Starts servers that a test may stop, freeze and kill; they end with the module."""
    with ExitStack() as started:

        def start(**wanted: Any) -> RedisServer:
            return started.enter_context(RedisServer(**wanted)).start()

        yield start


@pytest.fixture(scope="module")
def private_sentinels() -> Iterator[StartSentinels]:
    """Starts masters whose failover a test may cause; they end with the module."""
    with ExitStack() as started:

        def start(**wanted: Any) -> Sentinels:
            return started.enter_context(Sentinels(**wanted)).start()

        yield start


@pytest.fixture(scope="module")
def private_cluster() -> Iterator[StartCluster]:
    """Starts clusters that a test may break; they end with the module."""
    with ExitStack() as started:

        def start(**wanted: Any) -> Cluster:
            return started.enter_context(Cluster(**wanted)).start()

        yield start


@pytest.fixture(scope="session")
def _kafkas() -> Iterator[list[KafkaServer | KafkaMock]]:
    """The Kafka of this process, once a test has asked for it."""
    places: list[KafkaServer | KafkaMock] = []
    yield places
    for place in places:
        place.close()


@pytest.fixture
def kafka(_kafkas: list[KafkaServer | KafkaMock]) -> Iterator[Kafka]:
    """A Kafka without topics, all for this test: it may stop, freeze and kill the server.

    It has every kind of port, and the users of KAFKA_USERS. Whoever breaks it brings it back; if a test
    fails on the way, the next one gets another server.
    """
    if not (_kafkas and _kafkas[-1].is_ready):
        while _kafkas:
            _kafkas.pop().close()
        _kafkas.append(KafkaMock() if why_not() else KafkaServer(tls=True, users=KAFKA_USERS).start())
    place = _kafkas[-1]
    yield Kafka(place)
    if place.is_ready:
        place.tidy()


@pytest.fixture(scope="module")
def private_kafka() -> Iterator[StartKafka]:
    """Starts servers that a test may stop, freeze and kill; they end with the module."""
    skip_without_kafka()
    with ExitStack() as started:

        def start(**wanted: Any) -> KafkaServer:
            return started.enter_context(KafkaServer(**wanted)).start()

        yield start


@pytest.fixture(scope="module")
def _trio() -> Iterator[KafkaTrio]:
    skip_without_kafka()
    with KafkaTrio() as trio:
        yield trio


@pytest.fixture
def kafka_trio(_trio: KafkaTrio) -> KafkaTrio:
    """Three servers in one cluster, all for this test; what it kills is started again for the next."""
    return _trio.start()


@pytest.fixture
def chronicle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Iterator[StartChronicle]:
    """Starts the real command, in `tmp_path` unless told; what still runs at the end is killed."""
    request.node.stash[COMMANDS] = started = list[ChronicleProcess]()

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
