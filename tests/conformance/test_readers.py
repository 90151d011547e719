"""What every reader does, whatever the broker: the promises of `Reader`, one case each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.deadletters.death import REDRIVES
from chronicle.core.delivery import Delivery
from chronicle.core.topology import QueueOptions
from chronicle.errors import BrokerRefused, ConnectionLost
from chronicle.transports.catalog import declare_topology, open_publisher, open_reader
from chronicle.transports.seam import Closing, Connector, Outgoing, Reader, Reading
from conformance.kafka import new_topic
from conformance.redis import RedisPlace, in_cluster, one_server, with_sentinels, with_tls
from support.waiting import wait_for


def in_file(_request: pytest.FixtureRequest, folder: Path) -> Connector:
    return Connector(f"local:{folder / 'q.db'}", "q")


def at_rabbit(request: pytest.FixtureRequest, *, quorum: bool) -> Connector:
    queues = request.getfixturevalue("rabbit").queues
    return Connector(queues.url, queues.declare(queues.name("reader"), quorum=quorum))


def at_redis(place: RedisPlace) -> Connector:
    return place.connector(place.streams.make(place.streams.name("reader")))


def at_kafka(request: pytest.FixtureRequest, partitions: int) -> Connector:
    server = request.getfixturevalue("kafka").server
    return Connector(server.url, new_topic(server, partitions))


PLACES: Final[Mapping[str, Callable[[pytest.FixtureRequest, Path], Connector]]] = {
    "local": in_file,
    "rabbitmq-classic": lambda request, _: at_rabbit(request, quorum=False),
    "rabbitmq-quorum": lambda request, _: at_rabbit(request, quorum=True),
    "kafka": lambda request, _: at_kafka(request, 1),
    "kafka-partitions": lambda request, _: at_kafka(request, 3),
    "redis": lambda request, _: at_redis(one_server(request)),
    "redis-tls": lambda request, _: at_redis(with_tls(request)),
    "redis-sentinel": lambda request, _: at_redis(with_sentinels(request)),
    "redis-cluster": lambda request, _: at_redis(in_cluster(request)),
}
UNORDERED: Final = ("kafka-partitions",)  # only what lies in one partition has an order
Open = Callable[[], Reader]
Arrange = Callable[[Sequence[bytes]], list[bytes]]


@pytest.fixture(params=PLACES)
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> Connector:
    """A queue that is there and empty."""
    made = PLACES[request.param](request, tmp_path)
    put(made)
    return made


@pytest.fixture
def arranged(request: pytest.FixtureRequest, connector: Connector) -> Arrange:
    """Bodies as they can be compared: as they come, if they come in the order of their publication."""
    return sorted if request.node.callspec.params["connector"] in UNORDERED else list


@pytest.fixture
def opened(connector: Connector) -> Iterator[Open]:
    """Opens readers, and closes them after the test."""
    made: list[Reader] = []

    def open_one() -> Reader:
        reader = open_reader(connector, Reading(ahead=4))
        made.append(reader)
        reader.open(lambda: False)
        return reader

    yield open_one
    for reader in made:
        reader.close()


def put(connector: Connector, *bodies: bytes) -> None:
    with open_publisher(connector) as publisher:
        publisher.publish([Outgoing(body) for body in bodies])


def rest(reader: Reader, room: int = 3) -> list[Delivery]:
    found: list[Delivery] = []
    while (batch := reader.read(room, 0.25)) is not None:
        assert len(batch) <= room
        found += batch
    return found


def bodies(opened: Open, number: int) -> list[bytes]:
    """All that is in the queue once so many are free again."""

    def free() -> Reader | None:
        reader = opened()
        if reader.present == number:
            return reader
        reader.close()
        return None

    reader = wait_for(free, 30, f"{number} messages")
    assert reader is not None
    found = [one.body for one in rest(reader)]
    reader.close()
    return found


SENT: Final = [b"\xff\x00 not text", b"", *(b"%d" % number for number in range(20))]


def test_everything_is_read_in_order_byte_for_byte_and_left_as_it_was(
    connector: Connector, opened: Open, arranged: Arrange
) -> None:
    """Z6, D-21: also what is more than one holder may take."""
    put(connector, *SENT)
    for _ in range(3):
        assert arranged(bodies(opened, len(SENT))) == arranged(SENT)


def test_what_was_removed_is_gone_and_the_rest_keeps_its_order(
    connector: Connector, opened: Open, arranged: Arrange
) -> None:
    put(connector, *SENT)
    reader = opened()
    found = rest(reader)
    assert arranged([one.body for one in found]) == arranged(SENT)
    reader.remove(found[1:12:5])
    reader.remove([])
    reader.close()
    kept = [one.body for place, one in enumerate(found) if place not in (1, 6, 11)]
    assert arranged(bodies(opened, len(kept))) == arranged(kept)


def test_what_is_published_meanwhile_is_not_read(
    connector: Connector, opened: Open, arranged: Arrange
) -> None:
    put(connector, b"1", b"2")
    reader = opened()
    first = reader.read(1, 5.0)
    put(connector, b"3")
    assert arranged([one.body for one in [*(first or ()), *rest(reader)]]) == [b"1", b"2"]
    reader.close()
    assert arranged(bodies(opened, 3)) == [b"1", b"2", b"3"]


def test_an_empty_queue_is_over_at_once(opened: Open) -> None:
    reader = opened()
    assert (reader.present, reader.read(10, 5.0)) == (0, None)


def test_what_was_read_before_it_was_closed_cannot_be_removed(
    connector: Connector, opened: Open, arranged: Arrange
) -> None:
    """The broker has it back, and perhaps somebody else has it."""
    put(connector, b"1", b"2")
    reader = opened()
    old = rest(reader)
    reader.close(Closing.LOST)
    reader.close()
    reader.open(lambda: False)
    with pytest.raises(ConnectionLost):
        reader.remove(old)
    reader.close()
    assert arranged(bodies(opened, 2)) == [b"1", b"2"]


def test_a_stopped_reader_still_removes(connector: Connector, opened: Open, arranged: Arrange) -> None:
    put(connector, b"1", b"2")
    reader = opened()
    first = reader.read(1, 5.0)
    reader.stop(5.0)
    reader.stop(5.0)
    reader.serve(0.05)
    reader.remove(first or ())
    reader.close()
    assert arranged([*(one.body for one in first or ()), *bodies(opened, 1)]) == [b"1", b"2"]


def test_a_queue_that_is_not_there_is_refused(connector: Connector) -> None:
    reader = open_reader(replace(connector, queue=f"{connector.queue}.not"), Reading())
    with pytest.raises(BrokerRefused):
        reader.open(lambda: False)
    reader.close(Closing.LOST)


def test_a_stop_ends_the_opening(connector: Connector) -> None:
    put(connector, b"1")
    reader = open_reader(connector, Reading())
    reader.open(lambda: True)
    assert reader.read(1, 0.0) is None
    reader.close()


def test_what_is_moved_is_in_the_other_queue_and_in_this_one_no_longer(
    connector: Connector, opened: Open
) -> None:
    """Seam: in one step; the order and every byte stay, and what was gone already is not named."""
    put(connector, *SENT)
    reader = opened()
    if not reader.moves:
        pytest.skip("whoever wants to move here publishes and removes")
    other = replace(connector, queue=f"{connector.queue}.dlq", declare=QueueOptions())
    declare_topology(other)
    found = rest(reader)
    reader.remove(found[:1])
    batch = [(one, Outgoing(one.body, {REDRIVES: 1})) for one in found[:12]]
    assert list(reader.move(batch, other.queue)) == found[1:12]
    assert list(reader.move(batch, other.queue)) == []
    reader.close()
    assert bodies(opened, len(SENT) - 12) == SENT[12:]
    moved = open_reader(other, Reading())
    moved.open(lambda: False)
    there = rest(moved)
    moved.close()
    assert [one.body for one in there] == SENT[1:12]
    assert {one.headers[REDRIVES] for one in there} == {1}


def test_what_is_moved_within_a_queue_is_at_its_end(connector: Connector, opened: Open) -> None:
    put(connector, b"1", b"2", b"3")
    reader = opened()
    if not reader.moves:
        pytest.skip("whoever wants to move here publishes and removes")
    (first, *_) = rest(reader)
    assert list(reader.move([(first, Outgoing(first.body))], connector.queue)) == [first]
    reader.close()
    assert bodies(opened, 3) == [b"2", b"3", b"1"]


def test_waking_ends_a_wait(opened: Open) -> None:
    """From any thread: without that it would last a minute."""
    reader = opened()
    bell = threading.Timer(0.3, reader.wake)
    bell.start()
    began = time.monotonic()
    reader.serve(60.0)
    bell.join()
    assert time.monotonic() - began < 30
