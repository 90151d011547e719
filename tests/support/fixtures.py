"""What the shared fixtures give, for tests to annotate: brokers, and ways to start things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import pytest

from support.kafka_mock import KafkaMock
from support.kafka_server import KafkaServer, why_not
from support.process import ChronicleProcess
from support.queues import Queues
from support.rabbit import RabbitNode
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer
from support.topics import Topics

FOREIGN: Final = "CHRONICLE_TEST_AMQP_URL"
NO_KAFKA: Final = "needs a real Kafka, and {}"
# Who may log in at `kafka`. The second has a password that every notation must quote.
KAFKA_USERS: Final = {"syncer": "kafka-test-password", "o'user": 'p"ä\\s:s@w/o%20r d'}


class Broker:
    """The RabbitMQ of a test: one we started, or the one named by CHRONICLE_TEST_AMQP_URL."""

    def __init__(self, url: str, queues: Queues, node: RabbitNode | None) -> None:
        self.url = url
        self.queues = queues
        self._node = node

    @property
    def node(self) -> RabbitNode:
        """The node, for exact counts, users and policies, and to be stopped, frozen or killed."""
        if self._node is None:
            pytest.skip(f"needs control over the broker, and {FOREIGN} names a foreign one")
        return self._node


class StartRedis(Protocol):
    """Starts a Redis server that its test may break (`private_redis`); RedisServer says what it takes."""

    def __call__(
        self,
        *,
        durable: bool = False,
        tls: bool = False,
        client_certs: bool = False,
        wrong_host: bool = False,
        password: str = "",
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> RedisServer: ...


class StartSentinels(Protocol):
    """Starts a master, its replica and their sentinels, which its test may break (`private_sentinels`)."""

    def __call__(self, *, durable: bool = False, password: str = "") -> Sentinels: ...


class StartCluster(Protocol):
    """Starts a cluster that its test may break (`private_cluster`)."""

    def __call__(self, *, durable: bool = False) -> Cluster: ...


class Kafka:
    """The Kafka of a test: a real one, or librdkafka's mock where none can be started."""

    def __init__(self, place: KafkaServer | KafkaMock) -> None:
        self._place = place

    @property
    def url(self) -> str:
        return self._place.url

    @property
    def topics(self) -> Topics:
        return self._place.topics

    @property
    def server(self) -> KafkaServer:
        """The server, with everything a mock has not; it may be stopped, frozen and killed."""
        if isinstance(self._place, KafkaMock):
            pytest.skip(NO_KAFKA.format(why_not()))
        return self._place


def skip_without_kafka() -> None:
    """Skip a test that no mock will do for, where no server can be started."""
    if problem := why_not():
        pytest.skip(NO_KAFKA.format(problem))


class StartKafka(Protocol):
    """Starts a Kafka server that its test may break (`private_kafka`); KafkaServer says what it takes."""

    def __call__(
        self,
        *,
        tls: bool = False,
        client_certs: bool = False,
        wrong_host: bool = False,
        users: Mapping[str, str] | None = None,
        acls: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> KafkaServer: ...


class StartChronicle(Protocol):
    """Starts the real command (`chronicle`)."""

    def __call__(
        self,
        *args: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        stderr: int | None = None,
    ) -> ChronicleProcess: ...
