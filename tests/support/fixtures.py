"""What the shared fixtures give, for tests to annotate: brokers, and ways to start things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import pytest

from support.process import ChronicleProcess
from support.queues import Queues
from support.rabbit import RabbitNode
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer

FOREIGN: Final = "CHRONICLE_TEST_AMQP_URL"


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
