"""Putting messages on a stream, or on channels.

Rule (S6): a lost answer leaves it open whether an entry was added, so nothing is sent twice by itself: the
        caller learns how many were confirmed. A stream must exist, as a queue must everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from chronicle.core.queues import is_dead_letter_queue
from chronicle.errors import BrokerRefused, ChronicleError, ConnectionLost
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.answers import OOM, word_of
from chronicle.transports.redis.choices import choices_of
from chronicle.transports.redis.connection import Argument, Wire
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.entries import PAST, pairs_of
from chronicle.transports.redis.keys import check_slot
from chronicle.transports.redis.options import Mode
from chronicle.transports.redis.topology import no_stream, no_such_kind
from chronicle.transports.seam import Connector, Outgoing, never, nothing
from chronicle.transports.tls import tls_context


class RedisPublisher:
    """Puts messages on one stream or channel."""

    def __init__(self, connector: Connector, stopping: Callable[[], bool] = never) -> None:
        self.confirmed = 0
        self._address = address_of(connector.url, connector.extras)
        self._choices = choices_of(connector.choices)
        self._connector = connector
        self._stopping = stopping
        self._context = tls_context(connector.tls) if self._address.tls else None
        self._wire: Wire | None = None
        if self._choices.mode is Mode.STREAM:
            check_slot(self._address, connector.queue)

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        commands = [self._command(message) for message in batch]
        wire = self._wire if self._wire is not None and not self._wire.closed else self._connect()
        answers = wire.ask(*commands, meanwhile=meanwhile)
        refusals = [answer for answer in answers if isinstance(answer, Exception)]
        self.confirmed += len(answers) - len(refusals)
        if refusals:
            raise self._refused(wire, refusals[0])

    def _connect(self) -> Wire:
        queue = self._connector.queue
        self._wire = wire = connect(
            self._address, queue, self._context, name=self._connector.tag, stopping=self._stopping
        )
        # Dead letters make their stream themselves, so that they may be put back into it.
        is_made = is_dead_letter_queue(queue)
        if self._choices.mode is Mode.STREAM and not is_made:
            (kind,) = map(wire.value, wire.ask(("TYPE", queue), stopping=self._stopping))
            if kind == b"none":
                raise no_stream(wire, queue)
            if kind != b"stream":
                raise no_such_kind(wire, queue, kind)
        return wire

    def _command(self, message: Outgoing) -> tuple[Argument, ...]:
        queue = self._connector.queue
        if self._choices.mode is Mode.PUBSUB:
            return ("PUBLISH", queue, message.body)
        # Which group an entry was meant for is past: who publishes a file, means everybody.
        pairs = pairs_of(message, self._choices.fields[0], without=PAST)
        limit: tuple[Argument, ...] = ()
        if self._choices.maxlen is not None:
            limit = ("MAXLEN", "~", self._choices.maxlen)
        return ("XADD", queue, *limit, "*", *pairs)

    def _refused(self, wire: Wire, error: Exception) -> ChronicleError:
        if word_of(error) == OOM:
            return BrokerRefused(
                f"{self._address.place}: the server is out of memory (maxmemory)",
                "give it more, or trim streams: --maxlen N",
            )
        trouble = wire.trouble(error)
        if isinstance(trouble, ConnectionLost):
            wire.close()
        return trouble
