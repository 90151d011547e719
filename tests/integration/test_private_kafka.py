"""Private Kafka servers do what the fault tests rely on: they die, return, freeze, ask, and fail over."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from urllib.parse import unquote, urlsplit

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from support.certs import Pair
from support.fixtures import KAFKA_USERS, Kafka, StartKafka
from support.kafka_mock import KafkaMock
from support.kafka_server import KafkaServer
from support.kafka_trio import KafkaTrio
from support.proxy import Mode
from support.topics import QUIET, Record, Topics
from support.waiting import wait_for

TRIES = 20  # to get an answer, a second each


def test_records_lie_where_they_were_put_with_all_they_have(kafka: Kafka) -> None:
    topics = kafka.topics
    topic = topics.make(topics.name())
    headers = [("twice", b"1"), ("twice", b"\xff"), ("none", None)]
    topics.publish(topic, b"1", keys=[b"\x00key"], headers=headers, partition=0, timestamp=1234)
    assert topics.publish(topic, None, b"", partition=2) == [(2, 0), (2, 1)]
    first, *others = topics.records(topic)
    assert first == Record(0, 0, b"\x00key", b"1", tuple(headers), 1234)
    assert [(one.key, one.value) for one in others] == [(None, None), (None, b"")]
    assert (topics.starts(topic), topics.ends(topic)) == ({0: 0, 1: 0, 2: 0}, {0: 1, 1: 0, 2: 2})


def test_offsets_are_told_with_their_metadata(kafka: Kafka) -> None:
    topics = kafka.topics
    topic = topics.make(topics.name())
    topics.publish(topic, *[b"x"] * 4, partition=1)
    assert (topics.committed("group", topic), topics.lag("group", topic)) == ({}, 4)
    topics.commit("group", topic, {1: 3}, "open: 2")
    assert (topics.committed("group", topic), topics.lag("group", topic)) == ({1: (3, "open: 2")}, 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_reads_in_a_group_is_told(kafka: Kafka, protocol: str) -> None:
    topics = kafka.server.topics
    topic = topics.make(topics.name())
    assert topics.members(topic) == []
    with topics.consumer(topic, **{"group.protocol": protocol, "client.id": "me"}) as consumer:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.05) or consumer.assignment(), 30, "partitions")
        (member,) = topics.members(topic)
    assert (member.client, member.partitions) == ("me", {topic: [0, 1, 2]})


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_comes_back_with_what_it_confirmed(kafka: Kafka, how: str) -> None:
    server = kafka.server
    topic = server.topics.make(server.topics.name())
    server.topics.publish(topic, b"kept")
    server.topics.commit("group", topic, {0: 0}, "kept")
    getattr(server, how)()
    assert not server.running
    server.start()
    assert server.topics.bodies(topic) == [b"kept"]
    assert server.topics.committed("group", topic) == {0: (0, "kept")}


def test_a_frozen_server_answers_nobody_until_it_is_thawed(kafka: Kafka) -> None:
    server = kafka.server
    with server.topics.admin() as admin:
        server.freeze()
        try:
            assert not server.is_ready
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=0.5)
        finally:
            server.thaw()
        assert admin.list_topics(timeout=10.0)


def test_who_comes_by_the_proxy_stays_behind_it(kafka: Kafka) -> None:
    """Also after the server has said where it is."""
    server = kafka.server
    topic = server.topics.make(server.topics.name())
    with server.topics.producer(**{"bootstrap.servers": urlsplit(server.proxied_url).netloc}) as producer:
        producer.produce(topic, b"before")
        assert producer.flush(10) == 0
        server.proxy.set(Mode.BLACK_HOLE)
        producer.produce(topic, b"held")
        assert producer.flush(0.5) == 1
        assert server.topics.bodies(topic) == [b"before"]
        server.proxy.set(Mode.PASS)
        assert producer.flush(10) == 0
    assert sorted(server.topics.bodies(topic)) == [b"before", b"held"]


def test_tls_is_checked_by_both_sides(kafka: Kafka, private_kafka: StartKafka) -> None:
    """Z9."""
    lenient = kafka.server
    strict, wrong = private_kafka(client_certs=True), private_kafka(wrong_host=True)
    assert lenient.certs is not None
    assert strict.certs is not None
    assert reached(lenient, lenient.tls_url)
    assert reached(strict, strict.tls_url, strict.certs.client)
    assert not reached(strict, strict.tls_url)
    assert not reached(strict, strict.tls_url, strict.certs.stranger)
    assert not reached(wrong, wrong.tls_url)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", KAFKA_USERS)
def test_users_log_in_with_their_passwords(kafka: Kafka, user: str, mechanism: str) -> None:
    """Z14."""
    server = kafka.server
    assert reached(server, server.url_as(user), mechanism=mechanism)
    assert reached(server, server.tls_url_as(user), mechanism=mechanism)
    assert not reached(server, server.url_as(user, "wrong"), mechanism=mechanism)


def test_users_have_their_own_rights(private_kafka: StartKafka) -> None:
    server = private_kafka(users={"reader": "of~books"}, acls=True)
    topic = server.topics.make(server.topics.name())
    server.topics.publish(topic, b"1")
    config = settings_of(server, server.url_as("reader"))
    consumer = Consumer({**config, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        assert told(consumer, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        server.allow("reader", "READ", "DESCRIBE", topic=topic)
        wait_for(lambda: told(consumer, topic) is None, 60, "the right to look")
        server.allow("reader", "READ", group="readers")
        consumer.subscribe([topic])
        wait_for(lambda: read(consumer) == b"1", 60, "the record")
        server.forbid("reader")
        wait_for(lambda: told(consumer, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED, 60, "the end of it")
    finally:
        consumer.close()


def test_a_server_that_cannot_start_says_why(private_kafka: StartKafka) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)Kafka ended while starting.*num\.io\.threads"):
        private_kafka(settings={"num.io.threads": "many"})


def test_what_was_made_is_cleared_with_all_that_belongs_to_it(kafka: Kafka) -> None:
    topics = kafka.server.topics
    before = topics.names()
    topic, other = topics.name(), topics.name("other")
    topics.make(f"{topic}.dlq")
    topics.make(topic)
    topics.made.remove(other)
    topics.make(other, retention_ms=-1)
    topics.made.remove(other)
    topics.clear()
    assert sorted(topics.names()) == sorted([*before, other])
    topics.delete(other, other, topic)
    assert sorted(topics.names()) == sorted(before)


def test_another_server_leads_when_the_leader_is_killed(kafka_trio: KafkaTrio) -> None:
    """Twice, so that a test may do it as often as it likes; what was confirmed is there."""
    topics = kafka_trio.topics
    topic = topics.make(topics.name())
    for number in range(2):
        topics.publish(topic, b"%d" % number, partition=0)
        before = kafka_trio.leader(topic)
        assert kafka_trio.fail_over(topic) is before
        assert kafka_trio.leader(topic) is not before
        # A new leader shows only what it knows the others to have, so the last one may come a little later.
        wait_for(partial(is_longer, topics, topic, number), 30, "all that was confirmed")
        kafka_trio.start()
    assert topics.bodies(topic) == [b"0", b"1"]
    topics.commit("group", topic, {0: 1})
    kafka_trio.coordinator("group").kill()
    kafka_trio.await_failover()
    assert topics.committed("group", topic) == {0: (1, "")}


def test_the_mock_does_for_tests_of_what_is_in_a_topic() -> None:
    with KafkaMock() as mock:
        test_records_lie_where_they_were_put_with_all_they_have(Kafka(mock))
        test_offsets_are_told_with_their_metadata(Kafka(mock))


def is_longer(topics: Topics, topic: str, length: int) -> bool:
    return len(topics.bodies(topic)) > length


def settings_of(server: KafkaServer, url: str, mechanism: str = "PLAIN") -> dict[str, str | int]:
    """How a bare client gets there, in librdkafka's own words."""
    parts = urlsplit(url)
    kind = "SSL" if parts.scheme == "kafka+ssl" else "PLAINTEXT"
    config: dict[str, str | int] = {"bootstrap.servers": parts.netloc.rpartition("@")[2], **QUIET}
    if server.certs is not None:
        config["ssl.ca.location"] = str(server.certs.ca)
    if not parts.username:
        return {**config, "security.protocol": kind}
    return {
        **config,
        "security.protocol": f"SASL_{kind}",
        "sasl.mechanism": mechanism,
        "sasl.username": unquote(parts.username),
        "sasl.password": unquote(parts.password or ""),
    }


def reached(server: KafkaServer, url: str, who: Pair | None = None, mechanism: str = "PLAIN") -> bool:
    """Whether this client gets in. One that does not must have been refused; a slow answer is waited for."""
    pair = {"ssl.certificate.location": str(who.cert), "ssl.key.location": str(who.key)} if who else {}
    before = refusals(server)
    producer = Producer({**settings_of(server, url, mechanism), **pair})
    for _ in range(TRIES):
        with suppress(KafkaException):
            producer.list_topics(timeout=1.0)
            return True
        if refusals(server) > before:
            return False
    raise AssertionError(f"there was no answer, and nobody was refused:\n{server.log_tail()}")


def refusals(server: KafkaServer) -> int:
    return sum(file.read_text(errors="replace").count("Failed authentication") for file in server.logs())


def told(consumer: Consumer, topic: str) -> int | None:
    """What is wrong with the topic for this client, by the number of the error."""
    problem = consumer.list_topics(topic, timeout=5.0).topics[topic].error
    return None if problem is None else problem.code()


def read(consumer: Consumer) -> bytes | None:
    """The next record's value; errors, of which some were true a moment ago, are passed over."""
    message = consumer.poll(0.1)
    return None if message is None or message.error() is not None else message.value()
