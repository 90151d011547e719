"""What is known of Kafka before a connection is made."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Table
from chronicle.transports.broker import Broker, Stopping, UrlFacts
from chronicle.transports.kafka.options import OPTIONS, SCHEMES, SECURE, SETTINGS
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step

KEEPS_DEAD_LETTERS: Final = "chronicle keeps dead letters itself, in the topic TOPIC.dlq"
NO_LOOP: Final = "there is no dead-letter exchange to go round in; use --on-failure retry:N"
READABLE: Final = (
    "the password goes to the brokers unencrypted; use kafka+ssl:// for brokers on other machines"
)
GUESSABLE: Final = (
    "who listens to the network can read all messages, and try to guess the password; use kafka+ssl:// for "
    "brokers on other machines"
)
ANY: Final = "topic"  # stands for the queue where that does not matter


def check_url(url: str, settings: Mapping[str, str], chosen: Mapping[str, Any]) -> UrlFacts:
    """Read the address and the choices; warn when a login would cross a network unencrypted (Z9)."""
    from chronicle.transports.kafka.address import address_of
    from chronicle.transports.kafka.choices import choices_of

    address = address_of(url, settings)
    choices_of(chosen, ANY)
    if not address.password or address.tls or address.loopback:
        return UrlFacts(address.prefetch)
    return UrlFacts(address.prefetch, (READABLE if address.mechanism == "PLAIN" else GUESSABLE,))


def by_key(delivery: Delivery) -> Hashable | None:
    """Records with one key are in one lane; those without a key in none."""
    key: bytes | None = delivery.origin.get("key")
    return key


def by_partition(delivery: Delivery) -> Hashable | None:
    partition: int | None = delivery.origin.get("partition")
    return partition


def states() -> Mapping[str, Table]:
    from chronicle.transports.kafka.states import KAFKA

    return {"Kafka": KAFKA}


def transport(connector: Connector) -> Transport:
    from chronicle.transports.kafka.consumer import KafkaTransport

    return KafkaTransport(connector)


def publisher(connector: Connector, stopping: Stopping) -> Publisher:
    from chronicle.transports.kafka.publisher import KafkaPublisher

    return KafkaPublisher(connector, stopping)


def reader(connector: Connector, reading: Reading) -> Reader:
    from chronicle.transports.kafka.reader import KafkaReader

    return KafkaReader(connector, reading)


def has_queue(connector: Connector, stopping: Stopping) -> bool:
    from chronicle.transports.kafka.topology import has_topic

    return has_topic(connector, stopping)


def plan(connector: Connector) -> tuple[Step, ...]:
    from chronicle.transports.kafka.topology import planned

    return planned(connector)


def declare(connector: Connector, stopping: Stopping) -> tuple[tuple[Step, Done], ...]:
    from chronicle.transports.kafka.topology import make_topics

    return make_topics(connector, stopping)


BROKER: Final = Broker(
    title="Kafka",
    schemes=SCHEMES,
    secure_schemes=SECURE,
    example="kafka://user@h1:9092,h2:9092",
    settings=SETTINGS,
    options=OPTIONS,
    states=states,
    refuses={
        "only_retry": "records wait for another try in memory",
        "management_url": KEEPS_DEAD_LETTERS,
        "allow_drop": KEEPS_DEAD_LETTERS,
        "max_retries": NO_LOOP,
        "on_exhausted": NO_LOOP,
    },
    unhonoured={
        "exchange": "--exchange has no effect: Kafka has no exchanges",
        "ttl": "--ttl has no effect: a topic keeps a record for as long as its retention.ms says",
        "dead_letter": "--no-dead-letter and --dead-letter-… have no effect: chronicle keeps dead letters, "
        "in TOPIC.dlq",
        "queue_type": "--queue-type has no effect: there is one type of topic",
        "durable": "--no-durable has no effect: how durable a topic is, --replication and the brokers say",
        "retry": "--retry-delay needs no topics: records wait in memory",
    },
    orders={"key": by_key, "partition": by_partition},
    usual_order="key",
    check_url=check_url,
    transport=transport,
    publisher=publisher,
    reader=reader,
    has_queue=has_queue,
    plan=plan,
    declare=declare,
)
