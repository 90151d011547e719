"""Creating and checking the topics of a queue, on a real Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from time import monotonic

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from chronicle.core.notice import Notice
from chronicle.core.topology import Done
from chronicle.errors import BrokerRefused, BrokerUnreachable, NoSuchQueue
from chronicle.transports.catalog import declare_topology
from chronicle.transports.kafka.topology import EXPIRE, SMALL, check_topics
from chronicle.transports.seam import Connector, never
from support.fixtures import Kafka, StartChronicle, StartKafka
from support.kafka_server import KafkaServer
from support.ports import free_ports
from support.topics import Topics


@pytest.fixture(scope="module")
def guarded(private_kafka: StartKafka) -> KafkaServer:
    """It lets a user do only what it is allowed, and would make any topic that somebody asks about."""
    return private_kafka(users={"crm": "kafka-test-password"}, acls=True,
                         settings={"auto.create.topics.enable": "true"})  # fmt: skip


def declared(url: str, topic: str, **choices: int) -> list[Done]:
    return [done for _, done in declare_topology(Connector(url, topic, choices=choices))]


def checked(url: str, topic: str) -> tuple[tuple[int, ...], list[str]]:
    notices: deque[Notice] = deque()
    numbers = check_topics(Connector(url, topic), never, notices).partitions
    return numbers, [notice.event for notice in notices]


def settings(topics: Topics, topic: str) -> dict[str, str]:
    with topics.admin() as admin:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in answer.result(30).items()}


# --- declaring --------------------------------------------------------------------------------------


def test_both_topics_are_made_once(kafka: Kafka) -> None:
    """K5: the dead letters have as many partitions, are kept for ever, and may be a little larger."""
    topics, topic = kafka.server.topics, kafka.topics.name()
    assert declared(kafka.url, topic, partitions=4) == [Done.MADE, Done.MADE]
    assert len(topics.leaders(topic)) == len(topics.leaders(f"{topic}.dlq")) == 4
    main, letters = settings(topics, topic), settings(topics, f"{topic}.dlq")
    assert letters["retention.ms"] == letters["retention.bytes"] == "-1"
    assert letters["cleanup.policy"] == "delete"
    assert int(letters["max.message.bytes"]) > int(main["max.message.bytes"])
    assert declared(kafka.url, topic, partitions=4) == [Done.THERE, Done.THERE]
    assert declared(kafka.url, topic) == [Done.THERE, Done.THERE]
    assert checked(kafka.url, topic) == ((0, 1, 2, 3), [])


def test_without_a_number_the_clusters_default_counts(kafka: Kafka) -> None:
    topics, topic = kafka.server.topics, kafka.topics.name()
    assert declared(kafka.url, topic) == [Done.MADE, Done.MADE]
    assert len(topics.leaders(topic)) == len(topics.leaders(f"{topic}.dlq")) == 3


def test_a_topic_that_exists_gets_its_dead_letters(kafka: Kafka) -> None:
    topics = kafka.server.topics
    topic = topics.make(topics.name(), 5, max_message_bytes=2_000_000)
    assert declared(kafka.url, topic) == [Done.THERE, Done.MADE]
    assert len(topics.leaders(f"{topic}.dlq")) == 5
    assert int(settings(topics, f"{topic}.dlq")["max.message.bytes"]) > 2_000_000


def test_what_exists_in_another_shape_is_told_and_left_alone(kafka: Kafka) -> None:
    topics = kafka.server.topics
    topic = topics.make(topics.name(), 2)
    with pytest.raises(BrokerRefused, match=r"has 2 partitions, but 3 were asked for; nothing was changed"):
        declared(kafka.url, topic, partitions=3)
    with pytest.raises(BrokerRefused, match=r"has 1 copies, but 2 were asked for"):
        declared(kafka.url, topic, replication=2)
    assert not topics.exists(f"{topic}.dlq")
    topics.make(f"{topic}.dlq", 1)
    assert declared(kafka.url, topic, partitions=2) == [Done.THERE, Done.THERE]
    assert len(topics.leaders(f"{topic}.dlq")) == 1


def test_more_copies_than_brokers(kafka: Kafka) -> None:
    topic = kafka.server.topics.name()
    with pytest.raises(BrokerRefused, match="too few brokers") as error:
        declared(kafka.url, topic, replication=2)
    assert "--replication" in error.value.remedy
    assert not kafka.topics.exists(topic)


def test_Z14_a_user_who_may_not_create(guarded: KafkaServer) -> None:
    topic = guarded.topics.name()
    with pytest.raises(BrokerRefused, match="may not"):
        declared(guarded.url_as("crm"), topic)
    for name in (topic, f"{topic}.dlq"):
        guarded.allow("crm", "CREATE", "DESCRIBE", topic=name)
    assert declared(guarded.url_as("crm"), topic) == [Done.MADE, Done.MADE]


def test_the_command(kafka: Kafka, chronicle: StartChronicle) -> None:
    topic = kafka.server.topics.name()
    args = ("declare", "--url", kafka.url, "--queue", topic, "--partitions", "2")
    plan = chronicle(*args, "--dry-run")
    assert plan.wait(30) == 0
    assert f"queue {topic}.dlq, partitions=2, retention.ms=-1" in plan.stdout
    assert not kafka.topics.exists(topic)
    for word in ("created", "exists"):
        made = chronicle(*args)
        assert made.wait(30) == 0
        assert re.findall(r"^(\w+): queue", made.stdout, re.MULTILINE) == [word, word]
    other = chronicle(*args[:-1], "3")
    assert other.wait(30) == 2
    assert "has 2 partitions, but 3 were asked for" in other.stderr


# --- checking ---------------------------------------------------------------------------------------


def test_K1_K5_a_missing_topic_is_told_and_not_made(guarded: KafkaServer) -> None:
    """Even by brokers that make whatever somebody asks about: no dead-letter topic by accident."""
    topics = guarded.topics
    topic = topics.name()
    with pytest.raises(NoSuchQueue, match=f"there is no topic '{topic}'") as error:
        checked(guarded.url, topic)
    assert "chronicle declare" in error.value.remedy
    topics.make(topic)
    with pytest.raises(NoSuchQueue, match=rf"there is no topic '{topic}\.dlq' for the dead letters") as error:
        checked(guarded.url, topic)
    assert "chronicle declare" in error.value.remedy
    assert topics.exists(topic)
    assert not topics.exists(f"{topic}.dlq")


def test_Z14_what_a_consumer_must_be_allowed(guarded: KafkaServer) -> None:
    topic = guarded.topics.name()
    declared(guarded.url, topic)
    url = guarded.url_as("crm")
    with pytest.raises(BrokerRefused, match=f"may not use the topic '{topic}'"):
        checked(url, topic)
    guarded.allow("crm", "DESCRIBE", topic=topic)
    guarded.allow("crm", "DESCRIBE", topic=f"{topic}.dlq")
    with pytest.raises(BrokerRefused, match=f"may not read the topic '{topic}'") as error:
        checked(url, topic)
    assert "docs/kafka.md" in error.value.remedy
    guarded.allow("crm", "READ", topic=topic)
    with pytest.raises(BrokerRefused, match=rf"may not write to the topic '{topic}\.dlq'"):
        checked(url, topic)
    guarded.allow("crm", "WRITE", topic=f"{topic}.dlq")
    with pytest.raises(BrokerRefused, match=rf"may not use the consumer group 'chronicle\.{topic}'"):
        checked(url, topic)
    guarded.allow("crm", "READ", group=f"chronicle.{topic}")
    assert checked(url, topic) == ((0, 1, 2), [])


def test_a_dead_letter_topic_that_may_lose_letters_is_told(kafka: Kafka) -> None:
    topics = kafka.server.topics
    topic = topics.make(topics.name())
    topics.make(f"{topic}.dlq", 1, retention_ms=86_400_000, retention_bytes=1_000_000, max_message_bytes=1000)
    assert checked(kafka.url, topic) == ((0, 1, 2), [EXPIRE, EXPIRE, SMALL])


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_K5_a_dead_letter_topic_that_would_lose_letters_is_refused(kafka: Kafka, policy: str) -> None:
    """A letter would take those before it with its key along, after the brokers had confirmed them."""
    topics = kafka.server.topics
    topic = topics.make(topics.name())
    topics.make(f"{topic}.dlq", 1, retention_ms=-1, cleanup_policy=policy)
    with pytest.raises(BrokerRefused, match="is compacted") as refused:
        checked(kafka.url, topic)
    assert refused.value.remedy == "set its cleanup.policy to delete"


HOARDER = """
import gc, sys
from collections import deque
from chronicle.errors import NoSuchQueue
from chronicle.transports.kafka.topology import check_topics
from chronicle.transports.seam import Connector, never

gc.set_threshold(1, 1, 1)
for number in range(20):
    try:
        check_topics(Connector(sys.argv[1], f"missing-{number}"), never, deque())
    except NoSuchQueue as error:
        kept = [error]  # with its traceback, and all that was in use
        kept.append(kept)
"""


def test_pythons_collector_never_lets_go_of_a_client(kafka: Kafka) -> None:
    """On the client's own thread, where it may be at work, librdkafka would end the process."""
    done = subprocess.run([sys.executable, "-c", HOARDER, kafka.url], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_broker_that_is_not_there(kafka: Kafka) -> None:
    (port,) = free_ports(1)
    asked = monotonic()
    with pytest.raises(BrokerUnreachable, match="connection refused"):
        checked(f"kafka://127.0.0.1:{port}", "orders")
    assert monotonic() - asked < 6


def test_a_stop_ends_the_wait() -> None:
    (port,) = free_ports(1)
    asked = monotonic()
    with pytest.raises(BrokerUnreachable):
        declare_topology(Connector(f"kafka://127.0.0.1:{port}", "orders"), lambda: True)
    assert monotonic() - asked < 2
