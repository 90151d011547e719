"""Entries that were trimmed from a Redis stream before the group had read them are told (S8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronicle.core.outcome import Action
from chronicle.transports.redis.consumer import StreamTransport
from chronicle.transports.redis.upkeep import UNREAD_TRIMMED
from chronicle.transports.seam import Closing, Connector, never
from conformance.harness import settle, verdict
from support.redis_server import RedisServer


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    name = redis_server.streams.make(redis_server.streams.name("unread"))
    redis_server.streams.publish(name, *(b"%d" % number for number in range(60)))
    yield name
    redis_server.streams.clear()


def consumer(server: RedisServer, stream: str) -> StreamTransport:
    transport = StreamTransport(Connector(server.url, stream, prefetch=10))
    transport.open(never)
    return transport


def handle(transport: StreamTransport, number: int) -> None:
    """Receive and acknowledge so many."""
    done = 0
    while done < number:
        transport.settle(())
        for delivery in transport.receive(min(10, number - done), 0.05):
            settle(transport, verdict(delivery, Action.ACK))
            done += 1


def trim(server: RedisServer, stream: str, length: int) -> None:
    with server.client() as client:
        client.xtrim(stream, maxlen=length, approximate=False)


def told(transport: StreamTransport) -> int:
    """How many it has told of."""
    return sum(notice.facts["count"] for notice in transport.notices if notice.event == UNREAD_TRIMMED)


def test_what_was_trimmed_under_a_consumer_is_told_before_it_ends(
    redis_server: RedisServer, stream: str
) -> None:
    """S8: also when it has read to the end by then, and ends before its next look."""
    with redis_server.client() as client:
        if int(client.info("server")["redis_version"].split(".")[0]) >= 8:
            pytest.skip("Redis 8 counts what was trimmed as read, so only a look before that can tell")
    transport = consumer(redis_server, stream)
    handle(transport, 10)
    trim(redis_server, stream, 5)
    handle(transport, 5)
    transport.stop(5.0)
    transport.close()
    assert told(transport) == 45


def test_what_was_trimmed_while_nobody_was_there_is_told_at_the_start(
    redis_server: RedisServer, stream: str
) -> None:
    """S8: and only by the first run that reads behind the gap."""
    first = consumer(redis_server, stream)
    handle(first, 10)
    first.stop(5.0)
    first.close()
    assert told(first) == 0
    trim(redis_server, stream, 20)
    second = consumer(redis_server, stream)
    assert told(second) == 30
    handle(second, 20)
    second.stop(5.0)
    second.close()
    assert told(second) == 30
    third = consumer(redis_server, stream)
    redis_server.streams.publish(stream, b"new")
    handle(third, 1)
    third.close(Closing.SETTLED)
    assert told(third) == 0


def test_what_was_read_before_it_was_trimmed_is_no_loss(redis_server: RedisServer, stream: str) -> None:
    """Negative control."""
    transport = consumer(redis_server, stream)
    handle(transport, 60)
    trim(redis_server, stream, 0)
    redis_server.streams.publish(stream, b"new")
    handle(transport, 1)
    transport.stop(5.0)
    transport.close()
    assert told(transport) == 0
