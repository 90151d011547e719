"""One poller and the connections on it: connecting, asking and waiting, each with a bound.

Rule 1: every wait ends: with its answer, at its limit, with the connection, or when somebody wants to stop.
Rule 2: the first reason for the end is the true one. While opening it is a refusal or an absence; what was
        open is lost.
Rule 3 (RB14): a question that the broker may answer by closing the channel has a channel of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Self

import pika
from pika import exceptions
from pika.channel import Channel

from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, OperatorError, ProtocolFault
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.parameters import place, reason, refusal
from chronicle.transports.rabbitmq.poller import Poller
from chronicle.transports.seam import Connector, never, nothing

CONNECT_TIMEOUT: Final = 60.0  # pika's own limits are shorter; this one only keeps a defect from hanging
ANSWER_TIMEOUT: Final = 10.0  # for one answer of a broker that is connected
CLOSE_TIMEOUT: Final = 2.0
TURN: Final = 0.25  # the longest between two looks at whether somebody wants to stop


class CalledOff(BrokerUnreachable):
    """Somebody wanted to stop, or had no more time, before the broker answered."""


class Session:
    """Connections that live and end together, turned by whoever waits for them."""

    def __init__(self, connector: Connector, stopping: Callable[[], bool] = never) -> None:
        self.place = place(connector)
        self.poller = Poller()
        self.end: BaseException | None = None  # why it is over
        self.opening = True  # until the owner says that it is open
        self._connector = connector
        self._stopping = stopping
        self._connections: list[Connection] = []
        self._logged_in: list[Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close(CLOSE_TIMEOUT if exc == (None, None, None) else 0.0)

    # --- connecting ---------------------------------------------------------------------------------

    def start(
        self, parameters: pika.ConnectionParameters, on_end: Callable[[BaseException], None] | None = None
    ) -> Connection:
        """Begin to connect; `on_end` puts the end of this connection into words of its own."""
        connection = Connection(parameters, self.poller, on_end or self.ended)
        self._connections.append(connection)
        return connection

    def log_in(self, connection: Connection) -> None:
        """Wait until the connection is open. Raises BrokerRefused, BrokerUnreachable."""
        self.wait(lambda: bool(connection.is_open), CONNECT_TIMEOUT)
        self._logged_in.append(connection)

    def open_channel(self, connection: Connection) -> Channel:
        """A channel whose end is the end of all."""
        channel: Channel = self.ask(lambda done: connection.channel(on_open_callback=done))
        channel.add_on_close_callback(self._channel_closed)
        return channel

    # --- asking -------------------------------------------------------------------------------------

    def ask(
        self,
        request: Callable[[Callable[[Any], None]], object],
        patience: float = ANSWER_TIMEOUT,
        *,
        heed: bool = True,
    ) -> Any:
        """Send a request and turn the poller until its answer is here."""
        answers: list[Any] = []
        try:
            request(answers.append)
        except exceptions.AMQPError as error:
            self.ended(error)
        self.wait(lambda: bool(answers), patience, heed=heed)
        return answers[0]

    def try_out(
        self, connection: Connection, request: Callable[[Channel, Callable[[Any], None]], object]
    ) -> Any:
        """Ask on a channel that may die of it; ChannelClosedByBroker is the broker's no."""
        channels: list[Channel] = []

        def begin(done: Callable[[Any], None]) -> None:
            def opened(channel: Channel) -> None:
                channel.add_on_close_callback(lambda _channel, error: done(error))
                request(channel, done)

            channels.append(connection.channel(on_open_callback=opened))

        answer = self.ask(begin)
        if isinstance(answer, exceptions.ChannelClosedByBroker):
            raise answer
        if isinstance(answer, BaseException):
            self.ended(answer)
            self.look()
        channels[0].close()
        return answer

    def wait(
        self,
        done: Callable[[], bool],
        patience: float,
        *,
        heed: bool = True,
        meanwhile: Callable[[], None] = nothing,
    ) -> None:
        """Turn the poller until it is done; CalledOff when somebody wants to stop and is heeded."""
        deadline = monotonic() + patience
        while not done():
            self.look()
            if heed and self._stopping():
                raise CalledOff(f"{self.place}: no answer in time")
            left = deadline - monotonic()
            if left <= 0:
                self.ended(TimeoutError(f"no answer for {patience:.0f}s"))
                self.look()
            self.poller.turn(min(left, TURN))
            meanwhile()
        self.look()

    # --- ending -------------------------------------------------------------------------------------

    def look(self) -> None:
        """Raise if it is over."""
        # Before the login is done pika itself says better what is wrong: another protocol, another port.
        for connection in self._logged_in:
            if connection.fault:
                raise ProtocolFault(f"{self.place}: what the broker sent cannot be read: {connection.fault}")
        error = self.end
        if error is None:
            return
        if isinstance(error, ConnectionLost):
            raise error
        if self.opening:
            raise self.refused() or BrokerUnreachable(f"{self.place}: {reason(error)}")
        problem = error.problem if isinstance(error, BrokerRefused) else f"{self.place}: {reason(error)}"
        raise ConnectionLost(problem)

    def refused(self) -> OperatorError | None:
        """The end as something the operator must change, if it is that."""
        if self.end is None or isinstance(self.end, BrokerRefused):
            return self.end
        return refusal(self.end, self._connector)

    def ended(self, error: BaseException) -> None:
        if self.end is None:  # the first reason is the true one
            self.end = error

    def _channel_closed(self, _channel: Channel, error: BaseException) -> None:
        if not isinstance(error, exceptions.ChannelClosedByClient):
            self.ended(error)

    def close(self, patience: float) -> None:
        """Let go of everything; wait at most so long for the broker to say goodbye. Never raises.

        The sockets are closed in any case: as long as one is open, the broker keeps what was held on it.
        """
        # It is going anyway. pika asserts something untrue when a login is called off in the middle.
        for connection in self._connections:
            with suppress(Exception):
                if not (connection.is_closed or connection.is_closing):
                    connection.close()
        with suppress(Exception):
            self._see_off(patience)
        for connection in self._connections:
            with suppress(Exception):
                connection.hang_up()
        with suppress(Exception):
            self.poller.catch_up()
        self.poller.close()

    def _see_off(self, patience: float) -> None:
        deadline = monotonic() + patience
        self.poller.turn(0.0)  # what can be sent goes out
        while any(not connection.is_closed for connection in self._connections):
            left = deadline - monotonic()
            if left <= 0:
                break
            self.poller.turn(left)
