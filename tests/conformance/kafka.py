"""Kafka as the conformance suite sees it: real topics in a group, by way of a proxy that cuts clients off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chronicle.transports.catalog import open_publisher, open_transport
from chronicle.transports.seam import Connector, Outgoing, Transport
from support.kafka_server import KafkaServer

# A member that learns of another one with its next heartbeat need not wait three seconds for that.
CLASSIC: Final = {"heartbeat.interval.ms": "300", "session.timeout.ms": "6000"}
LARGEST: Final = 2_000_000  # bytes, room for the largest of the suite's bodies
DEATH: Final = 16_384  # … and for what is said of its death


class KafkaBroker:
    """Topics with three partitions, read by the usual group; dead letters are in a topic beside each."""

    live = True
    shares = True
    misses_queues = True
    reconnects = True

    def __init__(self, server: KafkaServer, extras: Mapping[str, str] = CLASSIC) -> None:
        self._server = server
        self._extras = extras

    def new_queue(self, *, ordered: bool = False) -> str:
        return new_topic(self._server, 1 if ordered else 3)

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return open_transport(Connector(self._server.proxied_url, queue, prefetch, extras=self._extras))

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        with open_publisher(Connector(self._server.url, queue)) as publisher:
            publisher.publish([Outgoing(body) for body in bodies])

    def dead_letters(self, queue: str) -> list[bytes]:
        return self._server.topics.bodies(f"{queue}.dlq")

    def lose_connection(self, transport: Transport) -> None:
        self._server.proxy.cut()


def new_topic(server: KafkaServer, partitions: int) -> str:
    """A topic with one for its dead letters. Only within a partition records have an order."""
    topics = server.topics
    topic = topics.make(topics.name("conformance"), partitions, max_message_bytes=LARGEST)
    topics.make(f"{topic}.dlq", partitions, max_message_bytes=LARGEST + DEATH, retention_ms=-1)
    return topic
