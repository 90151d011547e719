"""How many messages are ready in a queue, asked for now and then while it is consumed.

Rule 1 (RB14): the broker may answer by closing the channel, so the question has one of its own.
Rule 2: nobody waits for the answer, and nothing is asked unless somebody wants to know.
Rule 3: a gauge must not hurt: if connections end while the channel is being opened (as a limit of channels
        has it), nothing is asked any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from pika.channel import Channel
from pika.exceptions import AMQPError

from chronicle.transports.rabbitmq.connection import Connection

EVERY: Final = 2.0  # seconds between two questions
IN_VAIN: Final = 2  # connections


class DepthGauge:
    """The number of ready messages in one queue, as the broker last said."""

    def __init__(self, queue: str) -> None:
        self.known: int | None = None
        self.wanted = False  # somebody has looked at it since it was asked for
        self._queue = queue
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._opening = False
        self._vain = 0
        self._ask_at = 0.0

    def begin(self, connection: Connection, depth: int) -> None:
        """There is a new connection, on which the queue had so many."""
        self._vain += self._opening
        self._connection = connection if self._vain < IN_VAIN else None
        self._channel, self._opening = None, False
        self.known, self.wanted = depth, False

    def end(self) -> None:
        """The connection is gone."""
        self._connection = self._channel = None

    def look(self, now: float) -> None:
        """Ask, if it is time."""
        connection = self._connection
        if now < self._ask_at or connection is None or self._opening:
            return
        self._ask_at = now + EVERY
        self.wanted = False
        with suppress(AMQPError):  # whoever serves the connection sees its end, too
            if self._channel is not None:
                self._ask(self._channel)
            else:
                connection.channel(on_open_callback=self._opened)
                self._opening = True

    def _opened(self, channel: Channel) -> None:
        self._opening, self._vain = False, 0
        self._channel = channel
        channel.add_on_close_callback(self._closed)
        with suppress(AMQPError):
            self._ask(channel)

    def _ask(self, channel: Channel) -> None:
        channel.queue_declare(self._queue, passive=True, callback=self._answered)

    def _answered(self, answer: Any) -> None:
        self.known = int(answer.method.message_count)

    def _closed(self, channel: Channel, _error: BaseException) -> None:
        """The broker does not tell; the next question has a new channel."""
        if channel is self._channel:
            self._channel = self.known = None
