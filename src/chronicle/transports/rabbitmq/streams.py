"""Telling a stream from a queue over AMQP alone (RB18): a stream has no dead letters, acks remove nothing.

A passive declare does not show the type, and declaring needs permission to configure. But the broker accepts
the argument `x-stream-offset` for a consumer of a stream only: for any other queue it closes the channel, and
nothing was delivered. A broker that does not check arguments would deliver, so it is not asked: there the
first message shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pika import exceptions
from pika.channel import Channel

from chronicle.core.delivery import Facts
from chronicle.errors import BrokerRefused
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.session import Answer, Session

OFFSET: Final = "x-stream-offset"  # an argument of a stream's consumer, and a header of its messages
CHECKS_ARGUMENTS: Final = (3, 10)  # the first RabbitMQ version that does


def ask_for_stream(session: Session, connection: Connection, queue: str) -> Callable[[], bool]:
    """Begin to ask; what it returns says whether this is certainly a stream."""
    if not _checks_arguments(connection):
        return lambda: False

    def consume(channel: Channel, done: Answer) -> None:
        channel.basic_qos(prefetch_count=1)  # a stream requires it
        channel.basic_consume(queue, _ignore, arguments={OFFSET: "next"}, callback=done)

    consumed = session.begin_to_try(connection, consume)

    def is_stream() -> bool:
        try:
            consumed()
        except exceptions.ChannelClosedByBroker:
            return False  # also when something else is wrong: the real consumer finds out what
        return True

    return is_stream


def came_from_stream(headers: Facts) -> bool:
    """Whether a message with these headers was delivered by a stream."""
    return OFFSET in headers


def refuse(where: str, queue: str) -> BrokerRefused:
    """The error for the operator."""
    return BrokerRefused(
        f"{where}: {queue!r} is a stream",
        "chronicle consumes classic and quorum queues; bind one of those to where the messages come from",
    )


def _checks_arguments(connection: Connection) -> bool:
    server = connection.server_properties or {}
    version = re.match(r"(\d+)\.(\d+)", str(server.get("version")))
    return (
        server.get("product") == "RabbitMQ"
        and version is not None
        and (int(version[1]), int(version[2])) >= CHECKS_ARGUMENTS
    )


def _ignore(*_: object) -> None:
    """A stream's message: it is refused anyway."""
