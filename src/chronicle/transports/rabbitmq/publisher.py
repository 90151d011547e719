"""Puts messages on a RabbitMQ queue, confirmed.

Rule 1: every message is mandatory, persistent and confirmed (RB7). A batch is done when each of its
        messages was confirmed and none was returned.
Rule 2: many are in flight at once, on a connection of their own (RB6); waiting is bounded by the
        broker's heartbeats, its blocked notice, and a limit on waiting for the next confirmation.
Rule 3: between batches the connection is not served. If it was lost meanwhile, it is opened again before
        the next batch: nothing was in flight, so nothing is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, Self

from pika import exceptions
from pika.channel import Channel
from pika.frame import Method

from chronicle.errors import BrokerRefused, ConnectionLost, InvalidMessage
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.codec.encode import PERSISTENT, encode, fits_frame
from chronicle.transports.rabbitmq.confirms import CONFIRM_TIMEOUT, Confirms
from chronicle.transports.rabbitmq.connection import Encoded
from chronicle.transports.rabbitmq.parameters import connection_parameters, oversize, reason
from chronicle.transports.rabbitmq.session import CLOSE_TIMEOUT, Session
from chronicle.transports.seam import Connector, Outgoing, never, nothing

KEPT: Final = frozenset(
    ("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "expiration",
     "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id")
)  # fmt: skip


class RabbitPublisher:
    """One connection and one confirming channel, driven only while a caller waits for it."""

    def __init__(self, connector: Connector, stopping: Callable[[], bool] = never) -> None:
        self._connector = connector
        self._stopping = stopping
        self._user = address_of(connector.url, connector.extras).user
        self._parameters = connection_parameters(connector, name=f"{connector.tag} publisher")
        self._session: Session | None = None
        self._channel: Channel | None = None
        self._under_way: Confirms[None] = Confirms()
        self._refused = ""
        self.confirmed = 0  # messages on the queue for certain, those of a failed batch included

    def __enter__(self) -> Self:
        self._connect(self._stopping)
        return self

    def __exit__(self, *exc: object) -> None:
        self._disconnect(CLOSE_TIMEOUT)

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        """Return when the broker has confirmed them all; raise if it did not accept one.

        `meanwhile` is called several times a second as long as there is something to wait for.
        """
        # All are encoded before the first is sent: one that cannot be must not leave half a batch.
        made = [(message.body, self._properties(message)) for message in batch]
        session, channel = self._ready()
        frame_max = channel.connection.params.frame_max
        if not all(fits_frame(properties.raw, frame_max) for _, properties in made):
            raise InvalidMessage("the headers do not fit into a frame, so no client can send them")
        self._refused = ""  # an earlier batch says nothing about this one
        try:
            for body, properties in made:
                self._under_way.published(None, self._connector.queue, monotonic())
                channel.basic_publish("", self._connector.queue, body, properties, mandatory=True)
            # Even after a refusal the others are waited for: the count at the end must be exact.
            while waiting := len(self._under_way):
                session.wait(
                    lambda: len(self._under_way) < waiting,
                    CONFIRM_TIMEOUT,
                    heed=False,
                    meanwhile=meanwhile,
                )
        except (exceptions.AMQPError, ConnectionLost) as error:
            raise self._lost(session, error, len(batch)) from None
        if self._refused:
            problem = f"{session.place}: {self._refused}"
            raise BrokerRefused(problem, "free space in the queue, or create it again")

    def _lost(self, session: Session, error: Exception, batch: int) -> Exception:
        """What ended the connection: a refusal if the broker said so, such as for lack of permission."""
        session.ended(error)
        too_large = oversize(session.end)
        if too_large is not None and batch == 1:
            return InvalidMessage(f"{session.place}: {too_large}")
        if too_large is not None:  # some of the others may be on the queue
            return BrokerRefused(f"{session.place}: {too_large}", "or leave that message out")
        refused = session.refused()
        if refused is not None or isinstance(error, ConnectionLost):
            return refused or error
        return ConnectionLost(f"{session.place}: {reason(error)}")

    def _ready(self) -> tuple[Session, Channel]:
        """What to publish on; opened again if it was lost since the last batch."""
        if self._session is not None:
            self._session.poller.catch_up()
            if self._session.end is not None:
                self._disconnect(0.0)
        if self._session is None or self._channel is None:
            self._connect(never)
        assert self._session is not None
        assert self._channel is not None
        return self._session, self._channel

    def _connect(self, stopping: Callable[[], bool]) -> None:
        """Open connection and channel, check the queue, ask for confirmations."""
        self._session = session = Session(self._connector, stopping)
        try:
            connection = session.start(self._parameters)
            session.log_in(connection)
            self._channel = channel = session.open_channel(connection)
            channel.add_on_return_callback(self._on_return)
            # Passive: it changes nothing, and a missing queue is noticed before the first message.
            queue = self._connector.queue
            session.ask(lambda done: channel.queue_declare(queue, passive=True, callback=done))
            session.ask(lambda done: channel.confirm_delivery(self._on_confirm, callback=done))
        except BaseException:
            self._disconnect(0.0)
            raise
        self._under_way = Confirms()
        session.opening = False

    def _on_confirm(self, frame: Method[Any]) -> None:
        for _, refusal in self._under_way.answered(frame.method):
            self._refused = refusal or self._refused
            self.confirmed += not refusal

    def _on_return(self, _channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        self._under_way.came_back(method.routing_key)

    def _disconnect(self, patience: float) -> None:
        session, self._session, self._channel = self._session, None, None
        if session is not None:
            session.close(patience)

    def _properties(self, message: Outgoing) -> Encoded:
        """Headers and properties as they came; always persistent. Raises InvalidMessage."""
        kept = {name: value for name, value in message.properties.items() if name in KEPT}
        if kept.get("user_id") != self._user:
            # The broker refuses a message with another user's name.
            kept.pop("user_id", None)
        return Encoded(encode(message.headers, {**kept, "delivery_mode": PERSISTENT}))
