"""The confirmed publisher against a real Kafka (K5): all of it or a reason, and no topic by a slip."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from chronicle.errors import BrokerRefused, ConnectionLost, InvalidMessage, NoSuchQueue
from chronicle.transports.catalog import open_publisher
from chronicle.transports.kafka.publisher import KafkaPublisher
from chronicle.transports.seam import Connector, Outgoing, Tls
from support.fixtures import KAFKA_USERS, Kafka, StartChronicle, StartKafka
from support.kafka_server import KafkaServer

USER = next(iter(KAFKA_USERS))
MESSAGES = [Outgoing(b"%d" % number, {}, {"key": "k"}) for number in range(100)]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.topics.make(kafka.topics.name())


@pytest.fixture(scope="module")
def guarded(private_kafka: StartKafka) -> KafkaServer:
    """It lets a user do only what it is allowed, and would make any topic that somebody asks about."""
    return private_kafka(users={"shop": "kafka-test-password"}, acls=True,
                         settings={"auto.create.topics.enable": "true"})  # fmt: skip


# --- what arrives -----------------------------------------------------------------------------------


def test_a_batch_is_in_the_topic_when_publish_returns(kafka: Kafka, topic: str) -> None:
    """K5: all of it; records with one key in their order."""
    with KafkaPublisher(Connector(kafka.url, topic)) as publisher:
        publisher.publish(MESSAGES)
        publisher.publish([])
        assert publisher.confirmed == len(MESSAGES)
        assert kafka.topics.bodies(topic) == [message.body for message in MESSAGES]
        publisher.publish([Outgoing(b"x" * 900_000)])
    assert len(kafka.topics.bodies(topic)) == len(MESSAGES) + 1


def test_a_record_has_all_that_the_message_has(kafka: Kafka, topic: str) -> None:
    """Z6: bytes as they are; and a message without a value is one without a value."""
    headers = {"text": "ü", "raw": b"\xff\x00", "none": None, "twice": ["1", b"\xfe"], "n": 7}
    with open_publisher(Connector(kafka.url, topic)) as publisher:
        publisher.publish(
            [
                Outgoing(b"\x00\xff", headers, {"key": b"\xff"}),
                Outgoing(b"", {}, {"key": "gone", "tombstone": True}),
                Outgoing(b"", {}, {}),
            ]
        )
    found = {record.key: record for record in kafka.topics.records(topic)}
    assert found[b"\xff"].value == b"\x00\xff"
    assert list(found[b"\xff"].headers) == [
        ("text", "ü".encode()), ("raw", b"\xff\x00"), ("none", None), ("twice", b"1"), ("twice", b"\xfe"),
        ("n", b"7"),
    ]  # fmt: skip
    assert found[b"gone"].value is None
    assert found[None].value == b""


def test_a_key_goes_where_other_producers_put_it(kafka: Kafka) -> None:
    """As Java's producers do, which are most; librdkafka by itself would put it elsewhere."""
    topic = kafka.topics.make(kafka.topics.name(), 8)
    # By Java: (toPositive(murmur2(key)) % 8)
    keys = {"21": _murmur2(b"21") % 8, "foobar": _murmur2(b"foobar") % 8, "": _murmur2(b"") % 8}
    with open_publisher(Connector(kafka.url, topic)) as publisher:
        publisher.publish([Outgoing(b"", {}, {"key": key}) for key in keys])
    found = {(record.key or b"").decode(): record.partition for record in kafka.topics.records(topic)}
    assert found == keys


def _murmur2(key: bytes) -> int:
    """Kafka's own (Utils.murmur2), made positive; the vectors of its tests are below."""
    mixed, mask = 0x9747B28C ^ len(key), 0xFFFFFFFF
    for at in range(0, len(key) - len(key) % 4, 4):
        part = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & mask
        mixed = (mixed * 0x5BD1E995 & mask) ^ ((part ^ part >> 24) * 0x5BD1E995 & mask)
    if rest := key[len(key) - len(key) % 4 :]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    mixed = (mixed ^ mixed >> 13) * 0x5BD1E995 & mask
    return (mixed ^ mixed >> 15) & 0x7FFFFFFF


def test_the_hash_is_kafkas() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in known.items():
        assert _murmur2(key) == value & 0x7FFFFFFF


def test_a_field_of_the_message_becomes_its_key(kafka: Kafka, topic: str) -> None:
    with open_publisher(Connector(kafka.url, topic, choices={"key": "contact.id"})) as publisher:
        publisher.publish([Outgoing(b'{"contact": {"id": 7}}', {}, {"key": "old"})])
        with pytest.raises(InvalidMessage, match=r"no text or number in contact\.id"):
            publisher.publish([Outgoing(b'{"contact": {"id": 8}}'), Outgoing(b'{"contact": {}}')])
    assert [record.key for record in kafka.topics.records(topic)] == [b"7"]


# --- what cannot be sent ----------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_found_before_anything_is_sent(kafka: Kafka) -> None:
    """As large as the topic takes, and no larger; the other half of the batch is not sent either."""
    server = kafka.server
    small = server.topics.make(server.topics.name(), max_message_bytes=5000)
    large = server.topics.make(server.topics.name(), max_message_bytes=3_000_000)
    with KafkaPublisher(Connector(kafka.url, small)) as publisher:
        with pytest.raises(InvalidMessage, match="takes records of at most 4488"):
            publisher.publish([Outgoing(b"fits"), Outgoing(b"x" * 4000, {"h": "x" * 600})])
        assert publisher.confirmed == 0
        publisher.publish([Outgoing(b"%04d" % number + b"x" * 4400) for number in range(50)])
        assert publisher.confirmed == 50
    with KafkaPublisher(Connector(kafka.url, large)) as publisher:
        publisher.publish([Outgoing(b"x" * 2_990_000), Outgoing(b"y" * 1_200_000), *MESSAGES])
        assert publisher.confirmed == 2 + len(MESSAGES)
    assert len(server.topics.bodies(small)) == 50


def test_a_compacted_topic_takes_no_record_without_a_key(kafka: Kafka) -> None:
    topic = kafka.server.topics.make(kafka.topics.name(), cleanup_policy="compact")
    with KafkaPublisher(Connector(kafka.url, topic)) as publisher:
        with pytest.raises(BrokerRefused) as error:
            publisher.publish([Outgoing(b"x")])
        publisher.publish(MESSAGES)
        assert publisher.confirmed == len(MESSAGES)
    assert "--key" in error.value.remedy


def test_K1_a_missing_topic_is_refused_at_once_and_not_made(guarded: KafkaServer) -> None:
    """Even by brokers that make whatever somebody asks about."""
    topic = guarded.topics.name()
    asked = monotonic()
    with pytest.raises(NoSuchQueue) as error, KafkaPublisher(Connector(guarded.url, topic)):
        pass
    assert monotonic() - asked < 5
    assert topic in error.value.problem
    assert "chronicle declare" in error.value.remedy
    assert not guarded.topics.exists(topic)


def test_a_topic_that_vanishes_between_two_batches(kafka: Kafka, topic: str) -> None:
    server = kafka.server
    connector = Connector(server.url, topic, extras={"message.timeout.ms": "3000"})
    with KafkaPublisher(connector) as publisher:
        publisher.publish(MESSAGES)
        server.topics.delete(topic)
        with pytest.raises((NoSuchQueue, ConnectionLost)):
            publisher.publish(MESSAGES)
        assert publisher.confirmed == len(MESSAGES)
    assert not server.topics.exists(topic)


# --- who may ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", sorted(KAFKA_USERS))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in(kafka: Kafka, topic: str, user: str, mechanism: str) -> None:
    url = kafka.server.url_as(user)
    with open_publisher(Connector(url, topic, extras={"sasl.mechanism": mechanism})) as publisher:
        publisher.publish([Outgoing(b"x")])
    assert kafka.topics.bodies(topic) == [b"x"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_H2_a_wrong_password_is_refused_at_once(kafka: Kafka, topic: str, mechanism: str) -> None:
    asked = monotonic()
    connector = Connector(
        kafka.server.url_as(USER, "canary-secret"), topic, extras={"sasl.mechanism": mechanism}
    )
    with pytest.raises(BrokerRefused, match="user name or password was refused") as error:
        open_publisher(connector).__enter__()
    assert monotonic() - asked < 10
    assert "canary" not in f"{error.value} {error.value.remedy}"


def test_H2_a_listener_without_logins_says_so(kafka: Kafka, topic: str) -> None:
    url = kafka.server.url.replace("kafka://", f"kafka://{USER}:canary-secret@")
    with pytest.raises(BrokerRefused, match="takes no login"):
        open_publisher(Connector(url, topic)).__enter__()


def test_Z9_tls_is_verified(kafka: Kafka, topic: str) -> None:
    server = kafka.server
    assert server.certs is not None
    trusted = Tls(str(server.certs.ca))
    for url in (server.tls_url, server.tls_url_as(USER)):
        with open_publisher(Connector(url, topic, tls=trusted)) as publisher:
            publisher.publish([Outgoing(b"x")])
    with pytest.raises(BrokerRefused, match="certificate is not trusted") as error:
        open_publisher(Connector(server.tls_url, topic)).__enter__()
    assert "--tls-ca" in error.value.remedy
    plain = server.url.replace("kafka://", "kafka+ssl://")
    with pytest.raises(BrokerRefused, match="no TLS on that port"):
        open_publisher(Connector(plain, topic, tls=trusted)).__enter__()


def test_H2_another_hosts_certificate_and_a_missing_one_are_refused(private_kafka: StartKafka) -> None:
    server = private_kafka(tls=True, wrong_host=True)
    assert server.certs is not None
    with pytest.raises(BrokerRefused, match="certificate is not trusted"):
        open_publisher(Connector(server.tls_url, "any", tls=Tls(str(server.certs.ca)))).__enter__()
    server.stop()
    server = private_kafka(client_certs=True)
    assert server.certs is not None
    with pytest.raises(
        BrokerRefused, match=r"refused the TLS connection|wants a client certificate"
    ) as error:
        open_publisher(Connector(server.tls_url, "any", tls=Tls(str(server.certs.ca)))).__enter__()
    assert "--tls-cert" in error.value.remedy
    ours = Tls(str(server.certs.ca), str(server.certs.client.cert), str(server.certs.client.key))
    with pytest.raises(NoSuchQueue):
        open_publisher(Connector(server.tls_url, "any", tls=ours)).__enter__()
    server.stop()


def test_Z14_a_user_without_the_right_to_write(
    guarded: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """And the command ends with 2, as for any other setting that must be changed (X6)."""
    topic = guarded.topics.make(guarded.topics.name())
    url = guarded.url_as("shop")
    with pytest.raises(BrokerRefused, match=f"may not use the topic '{topic}'"):
        open_publisher(Connector(url, topic)).__enter__()
    guarded.allow("shop", "READ", topic=topic)
    with pytest.raises(BrokerRefused, match=f"may not write to the topic '{topic}'"):
        open_publisher(Connector(url, topic)).__enter__()
    (tmp_path / "m.json").write_text("{}")
    process = chronicle("publish", "--queue", topic, str(tmp_path / "m.json"), env={"CHRONICLE_URL": url})
    assert process.wait(30) == 2
    assert f"may not write to the topic '{topic}'" in process.stderr
    guarded.allow("shop", "WRITE", topic=topic)
    with open_publisher(Connector(url, topic)) as publisher:
        publisher.publish([Outgoing(b"x")])
    assert guarded.topics.bodies(topic) == [b"x"]


# --- brokers that go --------------------------------------------------------------------------------


def test_brokers_that_were_away_between_two_batches(kafka: Kafka, topic: str) -> None:
    server = kafka.server
    with KafkaPublisher(Connector(server.url, topic)) as publisher:
        publisher.publish(MESSAGES)
        server.stop()
        server.start()
        publisher.publish(MESSAGES)
        assert publisher.confirmed == 2 * len(MESSAGES)
    assert len(server.topics.bodies(topic)) == 2 * len(MESSAGES)


def test_a_broker_that_does_not_answer_leaves_the_batch_uncertain(kafka: Kafka, topic: str) -> None:
    """The wait has an end, and somebody else's connection is served meanwhile."""
    server = kafka.server
    connector = Connector(server.url, topic, extras={"message.timeout.ms": "2000"})
    served: list[float] = []
    with KafkaPublisher(connector) as publisher:
        publisher.publish(MESSAGES)
        server.freeze()
        try:
            with pytest.raises(ConnectionLost, match="no confirmation in time"):
                publisher.publish(MESSAGES, lambda: served.append(monotonic()))
        finally:
            server.thaw()
        assert publisher.confirmed == len(MESSAGES)
    assert max(b - a for a, b in pairwise(served)) < 0.25


class Enough(Exception):
    """Whoever is served meanwhile has a problem of its own."""


def test_what_happens_meanwhile_can_end_the_wait(kafka: Kafka, topic: str) -> None:
    server = kafka.server

    def enough() -> None:
        raise Enough

    with KafkaPublisher(Connector(server.url, topic)) as publisher:
        publisher.publish(MESSAGES)
        server.freeze()
        try:
            with pytest.raises(Enough):
                publisher.publish(MESSAGES, enough)
        finally:
            server.thaw()
        publisher.publish(MESSAGES[:1])
        assert publisher.confirmed == len(MESSAGES) + 1


# --- the command ------------------------------------------------------------------------------------


def test_the_command(kafka: Kafka, topic: str, chronicle: StartChronicle, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text("".join(json.dumps({"contact": {"ref": f"c{number}"}}) + "\n" for number in range(10)))
    args = ("--url", kafka.url, "--queue", topic, "--key", "contact.ref", str(file))
    assert chronicle("publish", *args).wait(30) == 0
    assert {record.key for record in kafka.topics.records(topic)} == {b"c%d" % n for n in range(10)}
    refused = chronicle("publish", *args, "--set", "acks=1")
    assert refused.wait(30) == 2
    assert "acks is not taken" in refused.stderr
    unknown = chronicle("publish", *args, "--set", "no.such.thing=1")
    assert unknown.wait(30) == 2
    assert "librdkafka has no setting no.such.thing" in unknown.stderr
