"""The brokers that the conformance suite runs against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from chronicle.transports.seam import Transport
from conformance.harness import Broker, InLanes, LocalBroker, MemoryBroker, ProgramsBroker, opened
from conformance.kafka import KafkaBroker
from conformance.rabbitmq import RabbitBroker
from conformance.redis import CursorBroker, RedisBroker, in_cluster, one_server, with_sentinels, with_tls
from support.proxy import Proxy


def rabbitmq(request: pytest.FixtureRequest, *, quorum: bool) -> Broker:
    queues = request.getfixturevalue("rabbit").queues
    proxy = Proxy(queues.url)
    request.addfinalizer(proxy.close)
    return RabbitBroker(queues, proxy, quorum=quorum)


# A harness may ask for fixtures of its own: it is given the request, and the folder of the test.
BROKERS: Final[Mapping[str, Callable[[pytest.FixtureRequest, Path], Broker]]] = {
    "local": lambda request, folder: LocalBroker(folder),
    "local-lanes": lambda request, folder: InLanes(LocalBroker(folder)),
    "memory": lambda request, folder: MemoryBroker(),
    "memory-broker": lambda request, folder: ProgramsBroker(),
    "memory-lanes": lambda request, folder: InLanes(MemoryBroker()),
    "rabbitmq-classic": lambda request, folder: rabbitmq(request, quorum=False),
    "rabbitmq-quorum": lambda request, folder: rabbitmq(request, quorum=True),
    "kafka": lambda request, folder: KafkaBroker(request.getfixturevalue("kafka").server),
    "kafka-consumer-protocol": lambda request, folder: KafkaBroker(
        request.getfixturevalue("kafka").server, {"group.protocol": "consumer"}
    ),
    "redis": lambda request, folder: RedisBroker(one_server(request)),
    "redis-cursor": lambda request, folder: CursorBroker(one_server(request)),
    "redis-cursor-cluster": lambda request, folder: CursorBroker(in_cluster(request)),
    "redis-tls": lambda request, folder: RedisBroker(with_tls(request)),
    "redis-sentinel": lambda request, folder: RedisBroker(with_sentinels(request)),
    "redis-cluster": lambda request, folder: RedisBroker(in_cluster(request)),
}


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    return BROKERS[request.param](request, tmp_path)


@pytest.fixture
def consume(broker: Broker) -> Iterator[Callable[[str], Transport]]:
    """Opens transports, and closes them after the test."""
    made: list[Transport] = []

    def open_one(queue: str) -> Transport:
        transport = broker.make_transport(queue)
        made.append(transport)
        return opened(transport)

    yield open_one
    for transport in made:
        transport.close()
