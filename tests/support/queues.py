"""What a test does to queues, with plain pika: one short connection per call, so a restart harms nothing."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message taken off a queue."""

    body: bytes
    properties: pika.BasicProperties
    redelivered: bool
    routing_key: str
    exchange: str

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties.headers or {}


@dataclass(slots=True)
class Queues:
    """Declares, fills, counts and empties queues; remembers what it made, to clear it away."""

    url: str
    made: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)

    def name(self, word: str = "queue") -> str:
        """A queue name nobody else uses."""
        return f"chronicle.test.{word}.{secrets.token_hex(4)}"

    def declare(
        self,
        queue: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        quorum: bool = False,
        dlx: str | None = None,
    ) -> str:
        """A durable queue; `dlx` names its dead-letter exchange, which need not exist."""
        wanted = dict(arguments or {})
        if quorum:
            wanted["x-queue-type"] = "quorum"
        if dlx is not None:
            wanted["x-dead-letter-exchange"] = dlx
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=wanted)
        self.made.append(queue)
        return queue

    def declare_with_dead_letters(self, queue: str, *, quorum: bool = False) -> str:
        """A queue whose dead letters are kept; the name of the queue that keeps them."""
        exchange, dead = f"{queue}.dlx", f"{queue}.dead"
        self.declare(queue, quorum=quorum, dlx=exchange)
        self.declare(dead)
        with self.channel() as channel:
            channel.exchange_declare(exchange, exchange_type="fanout", durable=True)
            channel.queue_bind(dead, exchange)
        self.exchanges.append(exchange)
        return dead

    def publish(
        self,
        queue: str,
        *bodies: bytes,
        headers: Mapping[str, Any] | None = None,
        properties: pika.BasicProperties | None = None,
    ) -> None:
        """Put messages on a queue, each confirmed by the broker before the next; persistent by default."""
        written = properties or pika.BasicProperties(delivery_mode=2)
        if headers is not None:
            written.headers = dict(headers)
        with self.channel() as channel:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", queue, body, written, mandatory=True)

    def get_all(self, queue: str) -> list[Fetched]:
        """Take everything that is ready, acknowledged."""
        taken: list[Fetched] = []
        with self.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(queue)
                if method is None or properties is None or body is None:
                    return taken
                taken.append(
                    Fetched(body, properties, method.redelivered, method.routing_key, method.exchange)
                )
                channel.basic_ack(method.delivery_tag)

    def depth(self, queue: str) -> int:
        """How many messages are ready; what a consumer holds is not counted."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def consumers(self, queue: str) -> int:
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.consumer_count)

    def exists(self, queue: str) -> bool:
        try:
            self.depth(queue)
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == 404:
                return False
            raise
        return True

    def delete(self, queue: str) -> None:
        with self.channel() as channel:
            channel.queue_delete(queue)

    def is_version_4(self) -> bool:
        """Whether this is RabbitMQ 4.0 or newer."""
        with self.channel() as channel:
            said = channel.connection._impl.server_properties or {}
        return int(str(said["version"]).partition(".")[0]) >= 4

    def clear(self) -> None:
        """Delete everything made here; for a broker that outlives the run."""
        with contextlib.suppress(AMQPError), self.channel() as channel:
            for queue in self.made:
                channel.queue_delete(queue)
            for exchange in self.exchanges:
                channel.exchange_delete(exchange)
        self.made.clear()
        self.exchanges.clear()

    @contextlib.contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """A channel on a connection of its own, for what the other methods do not offer."""
        parameters = pika.URLParameters(self.url)
        parameters.socket_timeout = 10.0
        parameters.blocked_connection_timeout = 30.0
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()
