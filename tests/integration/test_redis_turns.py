"""At Redis every turn of the pump leads to the next: no question waits for the clock."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Final

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.redis.consumer import StreamTransport
from chronicle.transports.redis.cursor import CursorTransport
from chronicle.transports.redis.pubsub import PubSubTransport
from chronicle.transports.seam import Closing, Connector, Transport, never
from conformance.harness import verdict
from support.redis_server import RedisServer

SOON: Final = 2.0  # seconds, on the slowest machine; a pause for each question would take longer
ROOM: Final = 20
SILENCE: Final = 0.2  # seconds; what spins is not silent for so long
LARGE: Final = 16 * 1024 * 1024  # bytes; no socket takes so much at once


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    yield redis_server.streams.make(redis_server.streams.name())
    redis_server.streams.clear()


def open_transport(server: RedisServer, stream: str) -> StreamTransport:
    transport = StreamTransport(Connector(server.url, stream, prefetch=ROOM))
    transport.open(never)
    return transport


def turned(transport: Transport, wanted: int) -> list[Delivery]:
    """Turn the pump as an event loop does: once, and then only when its descriptor is readable."""
    found = list(transport.receive(ROOM, 0.0))
    fileno = transport.fileno()
    assert fileno is not None
    deadline = time.monotonic() + SOON
    while len(found) < wanted and select.select([fileno], [], [], max(0.0, deadline - time.monotonic()))[0]:
        found += transport.receive(ROOM, 0.0)
    return found


def is_woken(transport: Transport, patience: float) -> bool:
    """Turn the pump; whether that leads to the next turn within so many seconds."""
    transport.receive(0, 0.0)
    fileno = transport.fileno()
    assert fileno is not None
    return bool(select.select([fileno], [], [], patience)[0])


def test_the_first_entry_comes_without_a_pause(redis_server: RedisServer, stream: str) -> None:
    """Its own pending list and that of the dead are empty: that is no reason to wait."""
    redis_server.streams.publish(stream, b"1")
    transport = open_transport(redis_server, stream)
    assert [delivery.body for delivery in turned(transport, 1)] == [b"1"]
    transport.close(Closing.SETTLED)


def test_an_entry_for_an_idle_consumer_comes_without_a_pause(redis_server: RedisServer, stream: str) -> None:
    transport = open_transport(redis_server, stream)
    assert turned(transport, 1) == []  # it listens by now
    redis_server.streams.publish(stream, b"1")
    assert [delivery.body for delivery in turned(transport, 1)] == [b"1"]
    transport.close(Closing.SETTLED)


def test_a_long_pending_list_of_others_keeps_nobody_from_new_entries(
    redis_server: RedisServer, stream: str
) -> None:
    """It is searched in steps for what the dead have left; between them, new entries are read."""
    redis_server.streams.publish(stream, *[b"theirs"] * 1000)
    redis_server.streams.read(stream, "somebody-else", 1000)
    redis_server.streams.publish(stream, b"new")
    transport = open_transport(redis_server, stream)
    assert [delivery.body for delivery in turned(transport, 1)] == [b"new"]
    transport.close(Closing.SETTLED)


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "no-group"])
def test_what_the_socket_does_not_take_at_once_goes_as_soon_as_it_does(
    redis_server: RedisServer, stream: str, grouped: bool
) -> None:
    """Large dead letters do not leave one socket's buffer at a time, with a pause after each."""
    redis_server.streams.publish(stream, *[bytes(LARGE)] * 3)
    connector = Connector(redis_server.url, stream, prefetch=ROOM, choices={"no_group": not grouped})
    transport: Transport = StreamTransport(connector) if grouped else CursorTransport(connector)
    transport.open(never)
    work = [verdict(delivery, Action.DEAD_LETTER) for delivery in turned(transport, 3)]
    transport.settle(work)
    while any(settlement.fate is Fate.OPEN for settlement in work) and is_woken(transport, SOON):
        transport.settle(())
    assert [settlement.fate for settlement in work] == [Fate.DONE] * 3
    deadline = time.monotonic() + SOON
    while is_woken(transport, SILENCE):
        assert time.monotonic() < deadline, "it spins, though nothing is left to send"
        transport.settle(())
    transport.close(Closing.SETTLED)


def test_without_a_group_neither_the_first_nor_a_later_entry_waits(
    redis_server: RedisServer, stream: str
) -> None:
    redis_server.streams.publish(stream, b"1")
    choices = {"no_group": True}
    transport = CursorTransport(Connector(redis_server.url, stream, prefetch=ROOM, choices=choices))
    transport.open(never)
    assert [delivery.body for delivery in turned(transport, 1)] == [b"1"]
    assert turned(transport, 1) == []  # it listens by now
    redis_server.streams.publish(stream, b"2")
    assert [delivery.body for delivery in turned(transport, 1)] == [b"2"]
    transport.close(Closing.SETTLED)


def test_a_channel_wakes_the_loop_when_there_is_room_and_not_before(redis_server: RedisServer) -> None:
    """Data that nobody has room for must not turn the pump all the time."""
    channel = redis_server.streams.name("channel")
    connector = Connector(redis_server.url, channel, prefetch=ROOM, choices={"mode": "pubsub"})
    transport = PubSubTransport(connector)
    transport.open(never)
    fileno = transport.fileno()
    assert fileno is not None
    assert turned(transport, 1) == []
    with redis_server.client() as client:
        client.publish(channel, b"1")
        assert [delivery.body for delivery in turned(transport, 1)] == [b"1"]
        assert not transport.receive(0, 0.0)
        client.publish(channel, b"2")
        assert select.select([fileno], [], [], 0.3) == ([], [], [])
        assert [delivery.body for delivery in transport.receive(2, 0.0)] == [b"2"]
        client.publish(channel, b"3")
        assert select.select([fileno], [], [], SOON)[0]
        assert [delivery.body for delivery in turned(transport, 1)] == [b"3"]
    transport.close(Closing.SETTLED)
