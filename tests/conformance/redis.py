"""Redis as the conformance suite sees it: real streams in a group, at whatever kind of place they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from chronicle.transports.catalog import open_publisher, open_transport
from chronicle.transports.seam import Connector, Outgoing, Tls, Transport
from support.proxy import Proxy
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer
from support.streams import Streams


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """Where streams are, how to get there, and how to end every connection there."""

    streams: Streams
    url: str
    cut: Callable[[], object]
    tls: Tls = field(default_factory=Tls)

    def connector(self, queue: str, prefetch: int = 10) -> Connector:
        return Connector(self.url, queue, prefetch, tls=self.tls)


class RedisBroker:
    """Streams read by the usual group; dead letters are in a stream beside each."""

    live = True
    shares = True
    misses_queues = True
    reconnects = False

    def __init__(self, place: RedisPlace) -> None:
        self._place = place

    def new_queue(self, *, ordered: bool = False) -> str:
        return self._place.streams.make(self._place.streams.name("conformance"))

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return open_transport(self._place.connector(queue, prefetch))

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        with open_publisher(self._place.connector(queue)) as publisher:
            publisher.publish([Outgoing(body) for body in bodies])

    def dead_letters(self, queue: str) -> list[bytes]:
        return self._place.streams.bodies(f"{queue}.dlq")

    def lose_connection(self, transport: Transport) -> None:
        self._place.cut()


class CursorBroker(RedisBroker):
    """Streams read without a group; the position is in a key beside each."""

    shares = False

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        choices = {"no_group": True, "cursor": f"{queue}.cursor"}
        return open_transport(replace(self._place.connector(queue, prefetch), choices=choices))


def one_server(request: pytest.FixtureRequest) -> RedisPlace:
    server: RedisServer = request.getfixturevalue("redis_server")
    return _behind_proxy(request, RedisPlace(server.streams, server.url, lambda: None))


def with_tls(request: pytest.FixtureRequest) -> RedisPlace:
    server: RedisServer = request.getfixturevalue("redis_server")
    assert server.certs is not None
    tls = Tls(ca=str(server.certs.ca))
    return _behind_proxy(request, RedisPlace(server.streams, server.tls_url, lambda: None, tls))


# Sentinels and clusters tell where a stream is: nobody would ask a proxy twice.


def with_sentinels(request: pytest.FixtureRequest) -> RedisPlace:
    sentinels: Sentinels = request.getfixturevalue("redis_sentinels")
    return RedisPlace(sentinels.streams, sentinels.url, lambda: sentinels.master.disconnect_everybody())


def in_cluster(request: pytest.FixtureRequest) -> RedisPlace:
    cluster: Cluster = request.getfixturevalue("redis_cluster")
    return RedisPlace(cluster.streams, cluster.url, cluster.disconnect_everybody)


def _behind_proxy(request: pytest.FixtureRequest, place: RedisPlace) -> RedisPlace:
    proxy = Proxy(place.url)
    request.addfinalizer(proxy.close)
    return replace(place, url=proxy.url_for(place.url), cut=proxy.cut)
