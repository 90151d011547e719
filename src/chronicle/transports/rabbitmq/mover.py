"""Moves dead letters that the broker itself would lose (codec/deaths.py) to the queue that keeps them.

Rule 1: it connects with the first such message, without anybody waiting for it; most runs never need it.
Rule 2 (RB7): a copy without the forged header, mandatory, persistent and confirmed; only then may the
        original be acknowledged.
Rule 3: one try. A copy that is returned or refused, and everything under way when the connection fails, is
        reported with the reason, and the caller puts it aside. Consuming goes on.
Rule 4: a connection that ended says nothing about the next one, which the next such message opens, after a
        pause. Only that this user may not publish counts for all that come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic, time
from typing import Any, Final, NamedTuple

from pika import exceptions
from pika.channel import Channel
from pika.frame import Method

from chronicle.core.deadletters.death import failed
from chronicle.core.queues import dead_letter_queue
from chronicle.core.settlement import Settlement
from chronicle.errors import InvalidMessage
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.codec.decode import Unreadable
from chronicle.transports.rabbitmq.codec.encode import UNSENDABLE, fits_frame, relabelled
from chronicle.transports.rabbitmq.confirms import CONFIRM_TIMEOUT, Confirms
from chronicle.transports.rabbitmq.connection import Connection, Encoded
from chronicle.transports.rabbitmq.courier import WITHOUT_DEATHS
from chronicle.transports.rabbitmq.parameters import connection_parameters, reason
from chronicle.transports.rabbitmq.session import Session
from chronicle.transports.seam import Connector

PAUSE: Final = 1.0  # seconds from the end of a connection to the next try


class Moved(NamedTuple):
    """A delivery that was to be moved; `failure` says why it was not."""

    tag: int
    settlement: Settlement
    failure: str = ""


class Mover:
    """One publishing connection beside a consumer's, in the consumer's session."""

    def __init__(self, connector: Connector, session: Session, *, clock: Callable[[], float] = time) -> None:
        self._connector = connector
        self._session = session
        self._clock = clock
        self._target = dead_letter_queue(connector.queue)
        self._user = address_of(connector.url, connector.extras).user
        self._connection: Connection | None = None
        self._channel: Channel | None = None  # once it confirms
        self._denied = ""  # why nothing can be moved any more
        self._due = 0.0  # when it may connect again
        self._waiting: deque[tuple[Moved, Encoded]] = deque()
        self._under_way: Confirms[Moved] = Confirms()
        self._moved: list[Moved] = []
        self._tags: set[int] = set()

    def __contains__(self, tag: int) -> bool:
        """Whether this delivery is on its way and was not reported yet."""
        return tag in self._tags

    def move(self, tag: int, envelope: bytes, settlement: Settlement) -> None:
        """Begin to move a delivery; what became of it is reported by `moved`."""
        delivery, verdict = settlement.delivery, settlement.verdict
        ours = failed(delivery, verdict.reason, self._connector.tag, int(self._clock() * 1000))
        one = Moved(tag, settlement)
        self._tags.add(tag)
        try:
            properties = Encoded(relabelled(envelope, ours, WITHOUT_DEATHS, self._user))
        except (Unreadable, InvalidMessage):
            self._report(one, UNSENDABLE)
            return
        if self._denied:
            self._report(one, self._denied)
        elif self._channel is not None:
            self._publish(one, properties)
        else:
            self._waiting.append((one, properties))
            self._connect()

    def moved(self) -> list[Moved]:
        """What is safe in its new queue, or cannot be moved, since the last call."""
        moved, self._moved = self._moved, []
        self._tags.difference_update(one.tag for one in moved)
        return moved

    def look(self) -> None:
        """Give up on a connection that failed without saying so; connect again when it is time."""
        if self._connection is not None and self._connection.fault:
            self._fail("what the broker sent cannot be read")
        if self._under_way.overdue(monotonic()):
            self._fail(f"no confirmation for {CONFIRM_TIMEOUT:.0f}s")
        if self._waiting:
            self._connect()

    def _connect(self) -> None:
        """Begin to connect, unless that has begun or it is too soon."""
        if self._connection is not None or monotonic() < self._due:
            return
        parameters = connection_parameters(self._connector, name=f"{self._connector.tag} mover")
        connection = self._session.start(parameters, lambda error: self._ended(connection, error))
        connection.add_on_open_callback(self._on_open)
        self._connection = connection

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Channel) -> None:
        def confirming(_frame: object) -> None:
            self._channel = channel
            while self._waiting and self._channel is not None:
                self._publish(*self._waiting.popleft())

        channel.add_on_close_callback(lambda closed, error: self._ended(closed.connection, error))
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=confirming)

    def _publish(self, one: Moved, properties: Encoded) -> None:
        assert self._channel is not None
        if not fits_frame(properties.raw, self._channel.connection.params.frame_max):
            self._report(one, UNSENDABLE)
            return
        self._under_way.published(one, self._target, monotonic())
        try:
            body = one.settlement.delivery.body
            self._channel.basic_publish("", self._target, body, properties, mandatory=True)
        except exceptions.AMQPError:  # it is closing; the reason is on its way
            self._fail("the connection broke")

    def _on_return(self, _channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        # It comes before the confirmation of the same message.
        self._under_way.came_back(method.routing_key)

    def _on_confirm(self, frame: Method[Any]) -> None:
        for one, refusal in self._under_way.answered(frame.method):
            self._report(one, refusal)

    def _report(self, one: Moved, failure: str) -> None:
        self._moved.append(one._replace(failure=failure))

    def _ended(self, connection: object, error: BaseException) -> None:
        if connection is not self._connection:
            return  # it was given up before
        if isinstance(error, exceptions.ChannelClosedByBroker) and error.reply_code == 403:
            self._denied = "this user may not publish to the default exchange"
        self._fail(self._denied or reason(error))

    def _fail(self, why: str) -> None:
        """Give this connection up; what was on its way is not known to have arrived."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            self._session.drop(connection)
        self._due = monotonic() + PAUSE
        unsent, self._waiting = self._waiting, deque()
        under_way, self._under_way = self._under_way.given_up(), Confirms()
        for one in (*(one for one, _ in unsent), *under_way):
            self._report(one, why)
