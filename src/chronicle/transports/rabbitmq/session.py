"""One poller and the connections on it: connecting, asking and waiting, each with a time limit.

Rule 1: every wait ends: with its answer, at its limit, with the connection, or when the process stops.
Rule 2: the first reason for the end is the true one. While opening, it means refused or unreachable; after
        that, the connection is lost.
Rule 3 (RB14): a question that the broker may answer by closing the channel has a channel of its own, unless
        that answer ends the opening anyway.
Rule 4: questions that do not depend on one another are begun together: a broker may be far away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Self, TypeAlias

import pika
from pika import exceptions
from pika.channel import Channel

from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, OperatorError, ProtocolFault
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.parameters import place, reason, refusal
from chronicle.transports.rabbitmq.poller import Poller
from chronicle.transports.seam import Connector, never, nothing

CONNECT_TIMEOUT: Final = 60.0  # pika's own limits are shorter; this one only keeps a defect from hanging
ANSWER_TIMEOUT: Final = 10.0  # for one answer from a connected broker
CLOSE_TIMEOUT: Final = 2.0
TURN: Final = 0.25  # the longest between two checks for a stop


Answer: TypeAlias = Callable[[Any], None]  # called with the broker's answer
Request: TypeAlias = Callable[[Channel, Answer], object]


class CalledOff(BrokerUnreachable):
    """The process stopped, or the time was up, before the broker answered."""


class Session:
    """Connections that open and close together, turned by whoever waits for them."""

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
        """Begin to connect; `on_end` handles the end of this connection in its own way."""
        connection = Connection(parameters, self.poller, on_end or self.ended)
        self._connections.append(connection)
        return connection

    def drop(self, connection: Connection) -> None:
        """This connection is not needed any more, whatever state it is in; the session goes on without it."""
        self._connections.remove(connection)
        connection.hang_up()

    def log_in(self, connection: Connection) -> None:
        """Wait until the connection is open. Raises BrokerRefused, BrokerUnreachable."""
        self.wait(lambda: bool(connection.is_open), CONNECT_TIMEOUT)
        self._logged_in.append(connection)

    def open_channel(self, connection: Connection) -> Channel:
        """A channel whose end ends the whole session."""
        return self.begin_channel(connection)()

    def begin_channel(self, connection: Connection) -> Callable[[], Channel]:
        """The same, begun: what it returns waits for it."""

        def open_it(done: Answer) -> None:
            def opened(channel: Channel) -> None:
                channel.add_on_close_callback(self._channel_closed)
                done(channel)

            connection.channel(on_open_callback=opened)

        return self.begin(open_it)

    # --- asking -------------------------------------------------------------------------------------

    def ask(
        self, request: Callable[[Answer], object], patience: float = ANSWER_TIMEOUT, *, heed: bool = True
    ) -> Any:
        """Send a request and turn the poller until its answer is here."""
        return self.begin(request, patience, heed=heed)()

    def begin(
        self, request: Callable[[Answer], object], patience: float = ANSWER_TIMEOUT, *, heed: bool = True
    ) -> Callable[[], Any]:
        """Send a request; what it returns turns the poller until the answer is here."""
        answers: list[Any] = []
        try:
            request(answers.append)
        except exceptions.AMQPError as error:
            self.ended(error)

        def answer() -> Any:
            self.wait(lambda: bool(answers), patience, heed=heed)
            return answers[0]

        return answer

    def try_out(self, connection: Connection, request: Request) -> Any:
        """Ask on a channel that the broker may close; ChannelClosedByBroker means no."""
        return self.begin_to_try(connection, request)()

    def begin_to_try(self, connection: Connection, request: Request) -> Callable[[], Any]:
        """The same, begun: what it returns waits for the answer."""
        channels: list[Channel] = []

        def begin(done: Answer) -> None:
            def opened(channel: Channel) -> None:
                channel.add_on_close_callback(lambda _channel, error: done(error))
                request(channel, done)

            channels.append(connection.channel(on_open_callback=opened))

        begun = self.begin(begin)

        def outcome() -> Any:
            answer = begun()
            if isinstance(answer, exceptions.ChannelClosedByBroker):
                raise answer
            if isinstance(answer, BaseException):
                self.ended(answer)
                self.look()
            channels[0].close()
            return answer

        return outcome

    def wait(
        self,
        done: Callable[[], bool],
        patience: float,
        *,
        heed: bool = True,
        meanwhile: Callable[[], None] = nothing,
    ) -> None:
        """Turn the poller until it is done; with `heed`, CalledOff when the process stops."""
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
        # Before the login is done, pika itself knows better what is wrong: another protocol, another port.
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
        """Close everything; wait at most `patience` for the broker to confirm. Never raises.

        The sockets are closed in any case: as long as one is open, the broker keeps its messages assigned.
        """
        # It is closing anyway. pika has a wrong assertion that fails when a login is cancelled halfway.
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
