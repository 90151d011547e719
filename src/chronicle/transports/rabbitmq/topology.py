"""Carries out a topology plan on a RabbitMQ broker. Never deletes, never changes what exists.

Rule 1: all steps are checked before the first one is created. If one of them exists with other arguments,
        nothing is created at all.
Rule 2 (RB14): every check is on a channel of its own, because the broker answers "no" by closing it. What
        exists is compared by declaring it once more, which changes nothing.
Rule 3: a binding cannot be looked up over AMQP. Binding twice is the same as once, so it is simply bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from pika import exceptions

from chronicle.core.topology import Binding, Done, Exchange, Queue, Step
from chronicle.errors import BrokerRefused
from chronicle.transports.rabbitmq.connection import Connection
from chronicle.transports.rabbitmq.parameters import connection_parameters, is_missing, out_of_reach
from chronicle.transports.rabbitmq.session import Request, Session
from chronicle.transports.seam import Connector, never

# The text of a 406; the broker cuts it when names are long, so the end may be missing.
INEQUIVALENT: Final = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)'(?:.*: received (?P<asked>.*) but current is (?P<there>.+))?",
    re.DOTALL,
)
VALUE: Final = re.compile(r"(?:the value )?'(?P<value>.*?)'(?: of type '\w+')?", re.DOTALL)
CHOICES: Final = (
    "ask for what exists; or set it with a policy, which can be changed; or delete it yourself once it is "
    "empty and declare again"
)


def declare(
    connector: Connector, steps: Sequence[Step], stopping: Callable[[], bool] = never
) -> tuple[tuple[Step, Done], ...]:
    """Create what is missing; what became of each step. On a conflict BrokerRefused, and nothing is created.

    Raises BrokerUnreachable when there is no answer, a queue cannot be reached, or `stopping()` turns true
    first.
    """
    with Session(connector, stopping) as session:
        connection = session.start(connection_parameters(connector, name=f"{connector.tag} declare"))
        session.log_in(connection)
        bench = _Bench(session, connection)
        missing = [bench.is_missing(step) for step in steps]
        if bench.conflicts:
            conflicts = "; ".join(bench.conflicts)
            raise BrokerRefused(f"{session.place}: {conflicts}; nothing was changed", CHOICES)
        return tuple((step, bench.make(step, gone)) for step, gone in zip(steps, missing, strict=True))


def has_queue(connector: Connector, stopping: Callable[[], bool] = never) -> bool:
    """Whether there is such a queue."""
    with Session(connector, stopping) as session:
        connection = session.start(connection_parameters(connector, name=f"{connector.tag} dlq"))
        session.log_in(connection)
        try:
            return _Bench(session, connection).has_queue(connector.queue)
        except exceptions.ChannelClosedByBroker:
            return True  # it may not be looked at, or cannot be reached, but it is there


class _Bench:
    """One check or one change at a time, each on a channel of its own."""

    def __init__(self, session: Session, connection: Connection) -> None:
        self._session = session
        self._connection = connection
        self._where = session.place
        self._made = 0
        self.conflicts: list[str] = []

    def is_missing(self, step: Step) -> bool:
        """Whether the broker does not have it; what it has differently goes to `conflicts`.

        Raises BrokerUnreachable about a queue that is there but cannot be reached.
        """
        match step:
            case Binding():
                return False
            case Exchange(name=name, kind=kind):
                there = self._is_there(
                    lambda channel, done: channel.exchange_declare(name, kind, passive=True, callback=done)
                )
            case Queue(name=name):
                try:
                    there = self.has_queue(name)
                except exceptions.ChannelClosedByBroker as closed:
                    if closed.reply_code != 404:
                        raise
                    raise out_of_reach(self._where, str(step), closed) from None
        if there and not step.foreign:
            self._compare(step)
        if not there and isinstance(step, Queue) and step.foreign:
            raise BrokerRefused(
                f"{self._where}: there is no {step} to create retry queues for",
                "leave out --only-retry to create it",
            )
        return not there

    def has_queue(self, name: str) -> bool:
        return self._is_there(lambda channel, done: channel.queue_declare(name, passive=True, callback=done))

    def make(self, step: Step, missing: bool) -> Done:
        """Create it if it is missing."""
        if isinstance(step, Binding):
            self._try(
                step,
                lambda channel, done: channel.queue_bind(
                    step.queue, step.exchange, step.routing_key, callback=done
                ),
            )
            return Done.BOUND
        if missing:
            self._declare(step)
            self._made += 1
        return Done.MADE if missing else Done.THERE

    def _compare(self, step: Exchange | Queue) -> None:
        try:
            self._declare(step)
        except exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code != 406:
                raise
            self.conflicts.append(f"{step}: {difference(step, closed.reply_text)}")

    def _declare(self, step: Exchange | Queue) -> None:
        if isinstance(step, Exchange):
            self._try(
                step,
                lambda channel, done: channel.exchange_declare(
                    step.name, step.kind, durable=True, callback=done
                ),
            )
        else:
            arguments = dict(step.arguments)
            self._try(
                step,
                lambda channel, done: channel.queue_declare(
                    step.name, durable=bool(step.durable), arguments=arguments, callback=done
                ),
            )

    def _is_there(self, look: Request) -> bool:
        try:
            self._session.try_out(self._connection, look)
        except exceptions.ChannelClosedByBroker as closed:
            if is_missing(closed):
                return False
            if closed.reply_code == 405:  # an exclusive queue: comparing it gives the full error
                return True
            raise
        return True

    def _try(self, step: Step, change: Request) -> None:
        """Do it; a refusal names the step, not just the queue."""
        try:
            self._session.try_out(self._connection, change)
        except exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == 406 and INEQUIVALENT.search(closed.reply_text):
                raise
            if closed.reply_code == 404 and not is_missing(closed):
                raise out_of_reach(self._where, str(step), closed) from None
            before = f"; {self._made} before it were created" if self._made else ""
            raise BrokerRefused(
                f"{self._where}: {step}: the broker refused it: {closed.reply_text}{before}", _remedy(closed)
            ) from None


def difference(step: Exchange | Queue, text: str) -> str:
    """Which argument differs, its current value and the one asked for, from the broker's text."""
    found = INEQUIVALENT.search(text)
    if found is None:
        return text
    argument = found["argument"]
    wanted = _wanted(step, argument, found["asked"])
    return f"{argument} is currently {_shown(found['there'])}, but {wanted} was asked for"


def _wanted(step: Exchange | Queue, argument: str, asked: str | None) -> str:
    if isinstance(step, Queue) and argument in step.arguments:
        return str(step.arguments[argument])
    # We name no type for a classic queue; RabbitMQ 4 then adds one, the default of the virtual host.
    if argument == "x-queue-type":
        return "classic" if asked in (None, "none") else _shown(asked)
    if argument == "durable":
        return "false" if isinstance(step, Queue) and not step.durable else "true"
    return step.kind if isinstance(step, Exchange) and argument == "type" else "none"


def _shown(there: str | None) -> str:
    if there is None:
        return "something else"
    value = VALUE.fullmatch(there)
    return value["value"] if value else there


def _remedy(closed: exceptions.ChannelClosedByBroker) -> str:
    match closed.reply_code:
        case 403:
            return (
                "to declare, a user needs configure and read on everything, and write on the queues and the "
                "dead-letter exchange, which for retry queues is amq.default"
            )
        case 404:
            return "it was deleted meanwhile; declare again"
        case 405:
            return "it was declared exclusive; only its owner can use it"
    return "this broker does not know or allow the argument; leave the option out"
