"""K-e, R-002-34: commits that fail are tried once more, then told; nothing is lost, and nothing stops for it.

The errors come from librdkafka's mock of Kafka, which gives them on demand; it cannot describe topics, so the
look at them is left out.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError

from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Settlement
from chronicle.transports.kafka import consumer
from chronicle.transports.kafka.admin import Topic
from chronicle.transports.kafka.consumer import KafkaTransport
from chronicle.transports.kafka.reports import COMMIT_FAILED
from chronicle.transports.seam import Connector, never
from support.fixtures import StartChronicle, StartKafka
from support.kafka_mock import KafkaMock
from support.topic_stage import campaign_at
from support.waiting import wait_for

OFFSET_COMMIT: Final = 8  # Kafka's number of that request
ERRORS: Final = {
    "16 NOT_COORDINATOR": KafkaError.NOT_COORDINATOR,
    "22 ILLEGAL_GENERATION": KafkaError.ILLEGAL_GENERATION,
    "25 UNKNOWN_MEMBER_ID": KafkaError.UNKNOWN_MEMBER_ID,
    "27 REBALANCE_IN_PROGRESS": KafkaError.REBALANCE_IN_PROGRESS,
}
ACKED: Final = Verdict(Action.ACK, "as the test says")
RECORDS: Final = 60


@pytest.fixture
def mock() -> Iterator[KafkaMock]:
    with KafkaMock() as mock:
        yield mock


class Hands:
    """A consumer's pump: takes what comes, and settles it at once."""

    def __init__(self, mock: KafkaMock, topic: str) -> None:
        # The mock gives the partitions of a member that it was told to forget away when its session is over.
        # On a busy machine a second is soon over, and a member that is late in the middle of that may never
        # get any again.
        short = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
        self.transport = KafkaTransport(Connector(mock.url, topic, extras=short, tag="test"))
        self.taken: Counter[bytes] = Counter()

    def turn(self, room: int = 5) -> None:
        for delivery in self.transport.receive(room, 0.02):
            self.taken[delivery.body] += 1
            self.transport.settle([Settlement(delivery, Synced(), ACKED)])

    def until(self, count: int) -> None:
        def enough() -> bool:
            self.turn()
            return len(self.taken) >= count

        wait_for(enough, 30, f"{count} records", every=0)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_commit_that_is_refused_is_tried_again(
    mock: KafkaMock, monkeypatch: pytest.MonkeyPatch, error: int, times: int
) -> None:
    """K-e: lost 0, told from the second time on, and in the end everything is committed."""
    monkeypatch.setattr(consumer, "check_topics", lambda *_: Topic("t", (0,), 1, None, ""))
    topic = mock.topics.make(mock.topics.name("commits"), 1)
    mock.topics.publish(topic, *(b"%d" % number for number in range(RECORDS)))
    hands = Hands(mock, topic)
    transport = hands.transport
    transport.open(never)
    try:
        hands.until(RECORDS // 3)
        mock.fail(OFFSET_COMMIT, *[error] * times)
        hands.until(RECORDS)

        def all_committed() -> bool:
            hands.turn()
            return mock.topics.lag(f"chronicle.{topic}", topic) == 0

        wait_for(all_committed, 60, "everything committed", every=0.05)
    finally:
        transport.close()
    assert transport.unconfirmed == 0
    told = [notice for notice in transport.notices if notice.event == COMMIT_FAILED]
    assert len(told) <= (0 if times == 1 else 1)
    assert mock.topics.lag(f"chronicle.{topic}", topic) == 0


def test_metadata_that_is_too_large_keeps_no_offset_back(
    private_kafka: StartKafka, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K2: brokers that take 50 bytes of it get the offsets alone."""
    server = private_kafka(settings={"offset.metadata.max.bytes": "50"})
    campaign = campaign_at(server, tmp_path, "metadata", partitions=1)
    gate = tmp_path / "gate"
    # Every second record waits, so that the metadata is as long as can be.
    campaign.send(11)
    for _ in range(25):
        campaign.send(1)
        campaign.send(1, gate=str(gate))
    process = campaign.consume(chronicle, "--concurrency", "40", "--prefetch", "100", syncer="tasked")
    campaign.wait_ended(36)
    group = f"chronicle.{campaign.queue}"

    def committed() -> int | None:
        found = server.topics.committed(group, campaign.queue).get(0)
        return found[0] if found else None

    wait_for(lambda: committed() == 12, 30, "the watermark", every=0.1)
    gate.touch()
    campaign.wait_all_ended()
    wait_for(lambda: committed() == 61, 30, "everything committed", every=0.1)
    time.sleep(0.3)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)
