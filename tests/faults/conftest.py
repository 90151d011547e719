"""What the fault tests share: campaigns on a broker, one after the other or side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checker import AtKafka, AtRabbit, AtRedis, Campaign, InFile, NewCampaign
from support.fixtures import Broker, Kafka
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer


@pytest.fixture
def on_rabbit(rabbit: Broker, tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh queue of RabbitMQ, with its dead letters kept."""

    def make(word: str = "fault", *, quorum: bool = False) -> Campaign:
        queue = rabbit.queues.name(word)
        dead = rabbit.queues.declare_with_dead_letters(queue, quorum=quorum)
        return Campaign(AtRabbit(rabbit.queues), queue, tmp_path, dead)

    return make


@pytest.fixture
def on_redis(redis_server: RedisServer, tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh stream with its group, of the run's Redis unless told."""

    def make(word: str = "fault", *, server: RedisServer | Sentinels | Cluster = redis_server) -> Campaign:
        stream = server.streams.make(server.streams.name(word))
        return Campaign(AtRedis(server.streams, server.url), stream, tmp_path, f"{stream}.dlq")

    return make


@pytest.fixture
def on_kafka(kafka: Kafka, tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh topic of a real Kafka, with its dead-letter topic."""

    def make(word: str = "fault", *, partitions: int = 3) -> Campaign:
        server = kafka.server
        topic = server.topics.make(server.topics.name(word), partitions)
        dead = server.topics.make(f"{topic}.dlq", partitions)
        return Campaign(AtKafka(server.topics, server.url), topic, tmp_path, dead)

    return make


@pytest.fixture
def in_file(tmp_path: Path) -> NewCampaign:
    """Makes a campaign on a fresh queue file."""

    def make(word: str = "fault") -> Campaign:
        return Campaign(InFile(tmp_path / f"{word}.db"), word, tmp_path, f"{word}.dlq")

    return make
