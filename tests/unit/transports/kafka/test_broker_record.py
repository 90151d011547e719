"""What is known of Kafka before a connection is made."""

from __future__ import annotations

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.topology import Queue
from chronicle.engine.publication import in_batches
from chronicle.errors import InvalidMessage, SettingError
from chronicle.transports.kafka.broker import BROKER
from chronicle.transports.kafka.publisher import KafkaPublisher, key_in
from chronicle.transports.kafka.topology import EXPIRE, SMALL, _doubts
from chronicle.transports.seam import Connector

SECRET = "hunter22"


@pytest.mark.parametrize(
    ("url", "settings", "warned"),
    [
        (f"kafka://me:{SECRET}@box", {}, "password goes to the brokers unencrypted"),
        (f"kafka://me:{SECRET}@localhost,box", {}, "password goes to the brokers unencrypted"),
        (f"kafka://me:{SECRET}@box", {"sasl.mechanism": "SCRAM-SHA-512"}, "try to guess the password"),
        (f"kafka://me:{SECRET}@localhost", {}, ""),
        (f"kafka+ssl://me:{SECRET}@box", {}, ""),
        ("kafka://box", {}, ""),
    ],
)
def test_Z9_a_login_in_the_open_is_warned_about(url: str, settings: dict[str, str], warned: str) -> None:
    warnings = BROKER.check_url(url, settings, {}).warnings
    assert warned in " ".join(warnings)
    assert bool(warnings) is bool(warned)
    assert SECRET not in " ".join(warnings)


def test_a_wrong_choice_is_found_before_connecting() -> None:
    with pytest.raises(SettingError, match="--from"):
        BROKER.check_url("kafka://box", {}, {"from": "yesterday"})
    assert BROKER.check_url("kafka://box", {"prefetch": "7"}, {}).prefetch == 7


def test_D_23_the_lanes_of_a_topic() -> None:
    record = Delivery(b"", queue="t", transport="kafka", origin={"key": b"k", "partition": 3})
    bare = Delivery(b"", queue="t", transport="kafka", origin={"key": None, "partition": 3})
    assert [BROKER.orders["key"](one) for one in (record, bare)] == [b"k", None]
    assert BROKER.orders["partition"](record) == 3
    assert BROKER.usual_order == "key"


def test_the_plan_is_two_topics() -> None:
    """K5: with the dead-letter topic, which forgets nothing."""
    main, letters = BROKER.plan(Connector("kafka://box", "orders", choices={"partitions": 6}))
    assert main == Queue("orders", {"partitions": 6}, durable=None)
    kept = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    assert letters == Queue("orders.dlq", {"partitions": 6, **kept}, durable=None)
    _, letters = BROKER.plan(Connector("kafka://box", "orders"))
    assert letters.arguments["partitions"] == "as orders"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("main", "letters", "events"),
    [
        ({"max.message.bytes": "100"}, {"max.message.bytes": "200", "retention.ms": "-1"}, []),
        ({}, {}, []),
        ({"max.message.bytes": "100"}, {"max.message.bytes": "99"}, [SMALL]),
        ({}, {"retention.ms": "604800000"}, [EXPIRE]),
    ],
)
def test_a_dead_letter_topic_that_may_lose_letters(
    main: dict[str, str], letters: dict[str, str], events: list[str]
) -> None:
    found = _doubts("orders", "orders.dlq", {"orders": main, "orders.dlq": letters})
    assert [notice.event for notice in found] == events


@pytest.mark.parametrize(
    ("body", "key"),
    [(b'{"a": {"b": "x"}}', b"x"), (b'{"a": {"b": 7}}', b"7"), ('{"a": {"b": "ü"}}'.encode(), "ü".encode())],
)
def test_a_field_becomes_the_key(body: bytes, key: bytes) -> None:
    assert key_in(body, ("a", "b")) == key


def test_a_message_without_its_key_is_named_by_file_and_line() -> None:
    """Its content is not; and nothing was sent, so nobody has connected."""
    lines = (b'{"contact": {"email": "canary@example.org"}}', b'{"contact": {"name": "canary"}}')
    found = [
        Delivery(line, queue="q", transport="file", origin={"file": "m.jsonl", "line": number})
        for number, line in enumerate(lines, start=1)
    ]
    publisher = KafkaPublisher(Connector("kafka://h", "q", choices={"key": "contact.email"}))
    with pytest.raises(InvalidMessage, match=r"^m\.jsonl, line 2: the message has no text") as error:
        publisher.publish(next(in_batches(found)))
    assert "canary" not in str(error.value)
