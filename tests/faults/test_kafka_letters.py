"""K-d, K5: a dead letter's offset counts when the brokers have the letter, and not before."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from support.checker import Campaign
from support.fixtures import Kafka, StartChronicle, StartKafka
from support.kafka_server import KafkaServer
from support.process import ChronicleProcess
from support.topic_stage import TopicStage, campaign_at
from support.waiting import wait_for

DIES: Final = ("--on-failure", "dead-letter", "--concurrency", "4", "--brake", "0")
LETTERS: Final = 4
KIB: Final = 1024


@pytest.fixture(scope="module")
def server(private_kafka: StartKafka) -> KafkaServer:
    return private_kafka()


def failing_while_away(
    server: KafkaServer, chronicle: StartChronicle, folder: Path, *options: str
) -> tuple[Campaign, ChronicleProcess]:
    """A consumer that has to dead-letter four records at a moment when the server is gone."""
    if not server.running:
        server.start()
    campaign = campaign_at(server, folder, "letters", partitions=1)
    gate = folder / "gate"
    campaign.send(LETTERS, gate=str(gate), answer="false")
    process = campaign.consume(chronicle, *DIES, *options)
    campaign.wait_started(LETTERS)
    server.kill()
    process.wait_for_line("consumer_poll_failed")
    gate.touch()
    time.sleep(1.0)
    assert process.running
    assert not process.lines("message.dead_lettered")
    return campaign, process


def test_letters_wait_for_the_brokers_and_their_offsets_for_the_letters(
    server: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K-d: told as dead-lettered, and committed, when the report has come; each letter once."""
    campaign, process = failing_while_away(server, chronicle, tmp_path)
    server.start()
    wait_for(lambda: len(process.lines("message.dead_lettered")) == LETTERS, 30, "the reports")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr
    letters = [json.loads(body)["id"] for body in server.topics.bodies(campaign.dead)]
    assert sorted(letters) == list(range(LETTERS))
    assert server.topics.lag(f"chronicle.{campaign.queue}", campaign.queue) == 0
    assert set(campaign.started().values()) == {1}


def test_letters_that_nobody_took_are_not_committed_past(
    server: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K-d, F3: the drain waits for them as long as it may, then their records stay where they are."""
    campaign, process = failing_while_away(server, chronicle, tmp_path, "--drain-timeout", "1s")
    process.signal(signal.SIGTERM)
    assert process.wait() == 4, process.stderr
    assert len(process.lines("message.left")) == LETTERS
    server.start()
    report = campaign.report()
    assert (report.lost, sorted(report.queued)) == ([], list(range(LETTERS)))


@pytest.fixture
def stage(kafka: Kafka, chronicle: StartChronicle, tmp_path: Path) -> TopicStage:
    return TopicStage(kafka.server, chronicle, tmp_path)


def test_letters_that_are_too_large_go_alone_then_bare_then_nowhere(stage: TopicStage) -> None:
    """K5: brokers measure batches; what fits in no form ends the run, and is not committed past."""
    topics = stage.topics
    topic = stage.topic = topics.make(topics.name("large"), 1)
    stage.dead, stage.group = topics.make(f"{topic}.dlq", 1, max_message_bytes=2 * KIB), f"chronicle.{topic}"
    small = [b'{"n": "%s"}' % (b"x" * KIB) for _ in range(10)]
    tight, large = b'{"n": "%s"}' % (b"x" * (2 * KIB - 150)), b'{"n": "%s"}' % (b"x" * 3 * KIB)
    topics.publish(topic, *small, tight)
    process = stage.consume("no", *DIES)
    assert process.returncode == 0, process.stderr
    letters = stage.dead_letters()
    assert sorted(letter.value or b"" for letter in letters) == sorted([*small, tight])
    for letter in letters:
        assert bool(letter.headers) == (letter.value != tight)
    (told,) = process.lines("kafka.dead_letters_small")
    assert told["level"] == "warning"

    topics.publish(topic, large, *small)
    process = stage.start("no", *DIES)
    assert process.wait(30) == 1, process.stderr
    ended = process.lines("consumer.stopped")[0]["text"]
    assert "offset 11 of partition 0" in ended
    assert "max.message.bytes" in ended
    assert stage.committed() == 11
    assert "Traceback" not in process.stderr


def test_a_place_for_letters_that_vanishes_is_waited_for(stage: TopicStage) -> None:
    """K-d: told, tried again with growing pauses, and nothing committed until it is back."""
    stage.publish({"ok": False})
    process = stage.start("as_told", *DIES)
    wait_for(lambda: stage.committed() == 1, 30, "the first letter", every=0.1)
    stage.topics.delete(stage.dead)
    stage.publish({"ok": False}, {"ok": True})
    process.wait_for_line("kafka.dead_letter_refused", 45)
    wait_for(lambda: len(stage.calls()) == 3, 30, "the others")
    time.sleep(0.5)
    assert stage.committed() == 1
    assert process.running
    stage.topics.make(stage.dead, 1)
    wait_for(lambda: stage.committed() == 3, 45, "the letter", every=0.1)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert [json.loads(letter.value or b"") for letter in stage.dead_letters()] == [{"ok": False}]
    assert len(process.lines()) < 60


def test_a_right_that_is_taken_back_is_told(
    private_kafka: StartKafka, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K-d, H2: the letter waits until its user may write again."""
    server = private_kafka(users={"crm": "p4ssword"}, acls=True)
    stage = TopicStage(server, chronicle, tmp_path)
    server.allow("crm", "READ", "DESCRIBE", topic=stage.topic)
    server.allow("crm", "READ", group=stage.group)
    server.allow("crm", "WRITE", "DESCRIBE", topic=stage.dead)
    process = stage.start("as_told", *DIES, url=server.url_as("crm"))
    process.wait_for_line("consumer.ready")
    server.forbid("crm")
    server.allow("crm", "READ", "DESCRIBE", topic=stage.topic)
    server.allow("crm", "READ", group=stage.group)
    stage.publish({"ok": False})
    process.wait_for_line("kafka.dead_letter_refused", 45)
    assert stage.committed() in (None, 0)
    server.allow("crm", "WRITE", "DESCRIBE", topic=stage.dead)
    wait_for(lambda: stage.committed() == 1, 45, "the letter", every=0.1)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert "p4ssword" not in process.stderr
