"""K2: a record that is in work for very long holds its partition back, at a distance, and no other."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Settlement
from chronicle.transports.kafka import assignment
from chronicle.transports.kafka.consumer import KafkaTransport
from chronicle.transports.seam import Connector
from support.fixtures import Kafka

SPAN = 100
RECORDS = 1000


@pytest.fixture
def transport(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaTransport]:
    """An open consumer of two partitions with records in both, with a narrow span."""
    monkeypatch.setattr(assignment, "SPAN", SPAN)
    monkeypatch.setattr(assignment, "NARROW", SPAN // 2)
    topics = kafka.server.topics
    topic = topics.make(topics.name("span"), 2)
    topics.make(f"{topic}.dlq", 2)
    for partition in range(2):
        topics.publish(topic, *(b"%d" % number for number in range(RECORDS)), partition=partition)
    transport = KafkaTransport(Connector(kafka.url, topic))
    transport.open(lambda: False)
    yield transport
    transport.close()


def take(transport: KafkaTransport, seconds: float, enough: int = 2 * RECORDS) -> list[Delivery]:
    """What comes within this time; everything but the first record of partition 0 is settled at once."""
    came: list[Delivery] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until and len(came) < enough:
        batch = transport.receive(50, 0.1)
        transport.settle([acked(one) for one in batch if place(one) != (0, 0)])
        came += batch
    return came


def acked(delivery: Delivery) -> Settlement:
    return Settlement(delivery, Synced(), Verdict(Action.ACK, "done"))


def place(delivery: Delivery) -> tuple[int, int]:
    return delivery.origin["partition"], delivery.origin["offset"]


def test_a_stuck_record_holds_back_its_own_partition_only(transport: KafkaTransport) -> None:
    """K2: the line says how long it has been in work; when it is done, all the others come, once."""
    came = take(transport, 4.0)
    places = [place(one) for one in came]
    assert sum(partition == 1 for partition, _ in places) == RECORDS
    assert max(offset for partition, offset in places if partition == 0) == SPAN - 1
    (told,) = [notice for notice in transport.notices if notice.event == "kafka.partition_held_back"]
    assert told.facts["partition"] == 0
    assert 0 <= told.facts["age_s"] <= 4
    (stuck,) = [one for one in came if place(one) == (0, 0)]
    transport.settle([acked(stuck)])
    places += [place(one) for one in take(transport, 20.0, RECORDS - SPAN)]
    assert sorted(places) == [(partition, offset) for partition in range(2) for offset in range(RECORDS)]
