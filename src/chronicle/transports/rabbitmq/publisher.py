"""Puts messages on a RabbitMQ queue, confirmed.

Rule 1: every message is mandatory, persistent and confirmed (RB7). A batch is done when each of its
        messages was confirmed and none came back.
Rule 2: many are in flight at once, on a connection of their own (RB6); waiting is bounded by the
        broker's heartbeats, its blocked notice, and a limit on waiting for the next confirmation.
Rule 3: between batches nobody serves the connection. If it was lost meanwhile, it is opened again before
        the next batch: nothing was in flight, so nothing is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, Self

import pika
from pika import exceptions, spec
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel
from pika.frame import Method

from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.codec.encode import PERSISTENT, encode
from chronicle.transports.rabbitmq.connection import Encoded
from chronicle.transports.rabbitmq.parameters import connection_parameters, place, reason, refusal
from chronicle.transports.seam import Connector, Outgoing, nothing

CONFIRM_TIMEOUT: Final = 90.0
CLOSE_TIMEOUT: Final = 2.0
TURN: Final = 0.25  # seconds between two calls of `meanwhile`
KEPT: Final = frozenset(
    ("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration",
     "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")
)  # fmt: skip


class RabbitPublisher:
    """One connection and one confirming channel, driven only while somebody waits for it."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._place = place(connector)
        self._user = address_of(connector.url, connector.extras).user
        self._parameters = connection_parameters(connector, name=f"{connector.tag} publisher")
        self._loop: IOLoop
        self._connection: pika.SelectConnection | None = None
        self._channel: Channel | None = None
        self._sent = 0  # the broker counts publishes per channel from one; so do we
        self._open: set[int] = set()
        self._acked = 0
        self._returned = 0
        self._refused = ""
        self._lost: BaseException | None = None
        self._ready = False

    @property
    def confirmed(self) -> int:
        """How many messages are on the queue for certain, those of a failed batch included."""
        # The broker acknowledges a message that came back, too: it has done what it could.
        return self._acked - self._returned

    def __enter__(self) -> Self:
        self._loop = IOLoop()
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._disconnect()
        self._loop.close()

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        """Return when the broker has confirmed them all; raise if it did not take one."""
        # All are made before the first is sent: one that cannot be encoded must not leave half a batch.
        made = [(message.body, self._properties(message)) for message in batch]
        self._turn()
        if self._lost is not None:
            self._disconnect()
            self._connect()
        assert self._channel is not None
        self._refused = ""  # what an earlier batch met says nothing about this one
        for body, properties in made:
            self._sent += 1
            self._open.add(self._sent)
            self._channel.basic_publish("", self._connector.queue, body, properties, mandatory=True)
        # Even after a refusal the others are waited for: the count at the end must be exact.
        while self._open:
            waiting, deadline = len(self._open), monotonic() + CONFIRM_TIMEOUT
            while len(self._open) == waiting and (left := deadline - monotonic()) > 0:
                self._run(partial(self._fewer_than, waiting), min(left, TURN))
                meanwhile()
            if len(self._open) == waiting:
                raise ConnectionLost(f"{self._place}: no confirmation for {CONFIRM_TIMEOUT:.0f}s")
        if self._refused:
            raise BrokerRefused(f"{self._place}: {self._refused}", "make room for it or bring the queue back")

    def _fewer_than(self, waiting: int) -> bool:
        return len(self._open) < waiting

    def _connect(self) -> None:
        """Open connection and channel, check the queue, ask for confirmations."""
        self._lost, self._ready, self._sent = None, False, 0
        self._open.clear()
        self._connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=self._loop,
        )
        patience = (self._parameters.stack_timeout or 15.0) + CLOSE_TIMEOUT
        try:
            self._run(lambda: self._ready, patience)
        except ConnectionLost as error:
            raise BrokerUnreachable(str(error)) from None
        if not self._ready:
            raise BrokerUnreachable(f"no connection to {self._place}: no answer in time")

    def _on_open(self, connection: pika.connection.Connection) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_lost)
        channel.add_on_return_callback(self._on_return)
        # Passive: it changes nothing, and a queue that is missing is told before the first message.
        channel.queue_declare(self._connector.queue, passive=True, callback=self._on_queue)

    def _on_queue(self, _frame: Method[Any]) -> None:
        assert self._channel is not None
        self._channel.confirm_delivery(self._on_confirm, callback=self._on_ready)

    def _on_ready(self, _frame: Method[Any]) -> None:
        self._ready = True
        self._loop.stop()

    def _on_confirm(self, frame: Method[Any]) -> None:
        """Take an ack or a nack, for one message or for all up to it."""
        tag = frame.method.delivery_tag
        tags = {known for known in self._open if known <= tag} if frame.method.multiple else {tag}
        self._open -= tags
        if isinstance(frame.method, spec.Basic.Ack):
            self._acked += len(tags)
        else:
            self._refused = "the broker did not take a message: the queue is full or in trouble"
        self._loop.stop()

    def _on_return(self, _channel: Channel, _method: Any, _properties: Any, _body: bytes) -> None:
        self._returned += 1
        self._refused = f"the queue {self._connector.queue!r} is gone: a message came back"

    def _on_lost(self, _where: object, error: BaseException | str) -> None:
        """The channel or the connection is closed, or never came to be; the first reason is the true one."""
        if self._lost is None:
            self._lost = error if isinstance(error, BaseException) else ConnectionLost(str(error))
        self._loop.stop()

    def _run(self, done: Callable[[], bool], timeout: float) -> None:
        """Serve the connection until `done`, at most `timeout`; raise when it is lost."""
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            self._loop.stop()

        timer = self._loop.call_later(timeout, expire)
        try:
            while not done() and not expired and self._lost is None:
                self._loop.start()
        finally:
            self._loop.remove_timeout(timer)
        if self._lost is not None and not done():
            refused = refusal(self._lost, self._connector)
            if refused is not None:
                raise refused
            raise ConnectionLost(f"no connection to {self._place}: {reason(self._lost)}")

    def _turn(self) -> None:
        """Read what has arrived since the last batch, without waiting."""
        self._loop.call_later(0, self._loop.stop)
        self._loop.start()

    def _disconnect(self) -> None:
        """Say goodbye, for a moment only; never raises."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is None or connection.is_closed:
            return
        self._lost = None
        try:
            connection.close()
            self._run(lambda: connection.is_closed, CLOSE_TIMEOUT)
        except (exceptions.AMQPError, ConnectionLost, BrokerRefused):
            return

    def _properties(self, message: Outgoing) -> Encoded:
        """Headers and properties as they came; always persistent. Raises InvalidMessage."""
        kept = {name: value for name, value in message.properties.items() if name in KEPT}
        if kept.get("user_id") != self._user:
            # The broker refuses a message that carries somebody else's name.
            kept.pop("user_id", None)
        return Encoded(encode(message.headers, {**kept, "delivery_mode": PERSISTENT}))
