"""K-e, R-002-34: commits that fail are tried once more, then told; nothing is lost, and nothing stops for it.

The errors come from librdkafka's mock of Kafka, which gives them on demand.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError

from support.fixtures import StartChronicle, StartKafka
from support.kafka_mock import KafkaMock
from support.topic_stage import TopicStage, campaign_at
from support.waiting import wait_for

OFFSET_COMMIT: Final = 8  # Kafka's number of that request
ERRORS: Final = {
    "NOT_COORDINATOR": KafkaError.NOT_COORDINATOR,  # 16
    "ILLEGAL_GENERATION": KafkaError.ILLEGAL_GENERATION,  # 22
    "UNKNOWN_MEMBER_ID": KafkaError.UNKNOWN_MEMBER_ID,  # 25
    "REBALANCE_IN_PROGRESS": KafkaError.REBALANCE_IN_PROGRESS,  # 27
    "COORDINATOR_LOAD_IN_PROGRESS": KafkaError.COORDINATOR_LOAD_IN_PROGRESS,  # 14
    "UNKNOWN": -1,
}
OPTIONS: Final = ("--concurrency", "4")


@pytest.fixture
def mock() -> Iterator[KafkaMock]:
    with KafkaMock() as mock:
        yield mock


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_commit_that_is_refused_is_tried_again(
    mock: KafkaMock, chronicle: StartChronicle, tmp_path: Path, error: int, times: int
) -> None:
    """K-e: lost 0, the process lives, and in the end everything is committed."""
    campaign = campaign_at(mock, tmp_path, "commits")
    campaign.send(60, seconds=0.01)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_ended(5)
    mock.fail(OFFSET_COMMIT, *[error] * times)
    campaign.wait_all_ended()
    group = f"chronicle.{campaign.queue}"
    wait_for(lambda: mock.topics.lag(group, campaign.queue) == 0, 30, "everything committed", every=0.1)
    assert process.running
    campaign.send(5)
    campaign.wait_all_ended()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert len(process.lines("offset_commit_failed")) <= (0 if times == 1 else 2)
    print("REPEATS", report.repeats, [line["text"] for line in process.lines("offset_commit_failed")])
    assert not process.lines("connection.failed")


def test_metadata_that_is_too_large_keeps_no_offset_back(
    private_kafka: StartKafka, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K2: brokers that take 50 bytes of it get the offsets alone."""
    server = private_kafka(settings={"offset.metadata.max.bytes": "50"})
    stage = TopicStage(server, chronicle, tmp_path)
    campaign = campaign_at(server, tmp_path, "metadata", partitions=1)
    gate = tmp_path / "gate"
    # Every second record waits, so that the metadata is as long as can be.
    for number in range(60):
        campaign.send(1, **({"gate": str(gate)} if number % 2 and number > 10 else {}))
    process = campaign.consume(chronicle, "--concurrency", "40", "--prefetch", "100")
    campaign.wait_ended(35)
    group = f"chronicle.{campaign.queue}"
    wait_for(lambda: campaign_offset(server, group, campaign.queue) == 11, 30, "the watermark", every=0.1)
    gate.touch()
    campaign.wait_all_ended()
    wait_for(lambda: server.topics.lag(group, campaign.queue) == 0, 30, "everything committed", every=0.1)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)
    assert stage.topic


def campaign_offset(server: object, group: str, topic: str) -> int | None:
    found = server.topics.committed(group, topic).get(0)  # type: ignore[attr-defined]
    return found[0] if found else None
