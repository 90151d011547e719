"""Carries a message from its queue to another one: to a retry queue, or to the dead letters.

Rule 1 (RB7): every message is mandatory, persistent and confirmed. It has arrived when the broker has
        confirmed it and did not return it; only then may the original be acknowledged.
Rule 2 (RB6): it has a connection of its own, on the consumer's poller. An alarm stops only what is published;
        acknowledgements go on, and as long as nothing is to be published, an alarm may last. What is
        published waits for a minute in an alarm, else for a limit of ours; heartbeats bound both.
Rule 3: a message that was returned, or that the broker refused, is published again after a growing delay;
        the original stays unacknowledged, and no other message waits for it. A lost connection, or no answer
        at all, ends the whole transport: every unconfirmed message is delivered again. A message may arrive
        twice, but is never lost. A copy that is too large closes only the channel: another one is opened,
        what was under way is published again, and nothing of that size is sent on this connection any more.
Rule 4 (Z6): body and headers are the bytes that came; only chronicle's own headers are new, and what would
        mislead the broker on the way is left out.
"""

from __future__ import annotations

import heapq
import logging
import shlex
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from time import monotonic, time
from typing import Any, Final

from pika import exceptions
from pika.channel import Channel
from pika.frame import Method

from chronicle.core.backoff import Backoff
from chronicle.core.deadletters.death import COPIES, failed, returns_by_expiry
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.queues import retry_queue_name
from chronicle.core.settlement import Settlement
from chronicle.core.units import format_duration
from chronicle.errors import BrokerRefused, ConnectionLost, InvalidMessage
from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.codec.deaths import NAME as DEATHS
from chronicle.transports.rabbitmq.codec.deaths import can_be_dead_lettered
from chronicle.transports.rabbitmq.codec.decode import Unreadable
from chronicle.transports.rabbitmq.codec.encode import fits_frame, relabelled
from chronicle.transports.rabbitmq.confirms import CONFIRM_TIMEOUT, NO_TIME, Confirms
from chronicle.transports.rabbitmq.connection import Encoded
from chronicle.transports.rabbitmq.parameters import (
    BLOCKED,
    BLOCKED_TIMEOUT,
    Oversize,
    connection_parameters,
    is_missing,
    out_of_reach,
    oversize,
    place,
    reason,
)
from chronicle.transports.rabbitmq.session import ANSWER_TIMEOUT, Session
from chronicle.transports.seam import Connector

COPY_REFUSED: Final = "message.copy_refused"
AGAIN: Final = Backoff(1.0, 60.0)  # between two tries to publish a copy that was refused
NOWHERE: Final = ""  # no queue has this name, so what is sent there is returned
# Counters that apply only to the queue being left, and headers that make the broker copy to more queues.
LEFT_BEHIND: Final = frozenset(
    (b"x-delivery-count", b"x-acquired-count", *(name.encode() for name in COPIES))
)
WITHOUT_DEATHS: Final = LEFT_BEHIND | {DEATHS}


@dataclass(slots=True)
class Copy:
    """A delivery on its way to another queue, as it is published."""

    tag: int
    settlement: Settlement
    target: str
    properties: Encoded
    refusals: int = 0


class MayNotPublish(BrokerRefused):
    """This user may not write to the default exchange, so nothing can be carried."""


class Courier:
    """One publishing connection beside a consumer's, in the consumer's session.

    `dead_letters` is the queue that keeps them, if chronicle is to move them there.
    """

    def __init__(
        self,
        connector: Connector,
        session: Session,
        notices: deque[Notice],
        dead_letters: str,
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self._connector = connector
        self._place = place(connector)
        self._user = address_of(connector.url, connector.extras).user
        self._session = session
        self._notices = notices
        self._clock = clock
        self._dead_letters = dead_letters
        self.proven = False  # the broker has taken something
        self._denied: MayNotPublish | None = None
        self._gone = False  # nobody wants it any more
        self._blocked = False  # by an alarm, now
        self._proving = False  # somebody waits for the proof
        self._under_way: Confirms[Copy | None] = Confirms()  # None: the proof
        self._later: list[tuple[float, int, Copy]] = []  # refused, and due again
        self._order = count()
        self._carried: set[int] = set()  # tags under way or due again, or arrived and not yet reported
        self._arrived: list[tuple[int, Settlement]] = []
        self._largest = float("inf")  # bytes of a body; known once the broker has refused one
        self._channel: Channel | None = None
        self._channel_due = 0.0  # when it must be open again
        parameters = connection_parameters(connector, name=f"{connector.tag} courier", patient=True)
        self._connection = session.start(parameters, self._ended)

    # --- opening ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Check the queues and the permission to publish.

        Raises BrokerRefused when a retry queue is missing, BrokerUnreachable when one is there but out of
        reach, MayNotPublish when publishing is not allowed.
        """
        self._session.log_in(self._connection)
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)
        queue, delays = self._connector.queue, self._connector.retry_delays
        names = [retry_queue_name(queue, delay) for delay in delays]
        there = [self._look_for(name) for name in names]
        ready = self._session.begin(self._open_channel)
        missing = [name for name, is_there in zip(names, there, strict=True) if not is_there()]
        if missing:
            steps = ",".join(map(format_duration, delays))
            raise BrokerRefused(
                f"{self._place}: there is no queue {missing[0]!r} for messages that wait for another try",
                f"create it: chronicle declare --queue {shlex.quote(queue)} --retry-delay {steps} "
                "--only-retry, with the same --url; or start with --declare, which creates all it needs",
            )
        ready()
        self._prove()

    def _look_for(self, queue: str) -> Callable[[], bool]:
        """Begin to look passively (RB14); what it returns says whether the queue is there."""
        looked = self._session.begin_to_try(
            self._connection,
            lambda channel, done: channel.queue_declare(queue, passive=True, callback=done),
        )

        def is_there() -> bool:
            try:
                looked()
            except exceptions.ChannelClosedByBroker as closed:
                if is_missing(closed):
                    return False
                if closed.reply_code == 404:
                    raise out_of_reach(self._place, f"the queue {queue!r}", closed) from None
                why = reason(closed)
                raise BrokerRefused(
                    f"{self._place}: the broker does not allow access to the queue {queue!r}: {why}",
                    "retry:N needs a user that may use this queue and publish to the default exchange",
                ) from None
            return True

        return is_there

    def _open_channel(self, done: Callable[[Any], None]) -> None:
        def opened(channel: Channel) -> None:
            def confirms(answer: Any) -> None:
                self._channel = channel
                done(answer)

            channel.add_on_close_callback(self._on_closed)
            channel.add_on_return_callback(self._on_return)
            channel.confirm_delivery(self._on_confirm, callback=confirms)

        self._connection.channel(on_open_callback=opened)

    def _prove(self) -> None:
        """Send an empty message nowhere: there is no other way to see whether this user may publish.

        During an alarm the answer is delayed, and consuming does not wait for it.
        """
        self._proving = True
        self._publish(None, NOWHERE, b"", Encoded(b"\0\0"))
        self._session.wait(lambda: self.proven or self._blocked or self._denied is not None, ANSWER_TIMEOUT)
        self._proving = False
        if self._denied is not None:
            raise self._denied

    def leave(self) -> None:
        """It is not needed: the session goes on without it."""
        self._gone = True
        self._connection.close()

    # --- carrying -----------------------------------------------------------------------------------

    def __contains__(self, tag: int) -> bool:
        """Whether this delivery is on its way, or has arrived and was not reported yet."""
        return tag in self._carried

    @property
    def keeps_dead_letters(self) -> bool:
        """Whether dead letters are copied by us, to a queue of our own."""
        return bool(self._dead_letters)

    def takes(self, settlement: Settlement) -> bool:
        """Whether this verdict is the courier's to carry out."""
        action = settlement.verdict.action
        return action is Action.RETRY or (action is Action.DEAD_LETTER and self.keeps_dead_letters)

    def send(self, tag: int, envelope: bytes, settlement: Settlement) -> bool:
        """Publish a delivery to where its verdict sends it; False if its envelope cannot be passed on."""
        delivery, verdict = settlement.delivery, settlement.verdict
        ours = failed(delivery, verdict.reason, self._connector.tag, int(self._clock() * 1000))
        keeps_deaths = can_be_dead_lettered(envelope, delivery.queue)
        target = self._dead_letters
        if verdict.action is Action.RETRY:
            assert verdict.delay in self._connector.retry_delays, "a delay without a queue"
            target = retry_queue_name(delivery.queue, verdict.delay)
            # What is not decoded may name a loop that the broker would end by deleting the message.
            is_known = not delivery.envelope.fault
            keeps_deaths &= is_known and returns_by_expiry(delivery.headers, delivery.queue)
        without = LEFT_BEHIND if keeps_deaths else WITHOUT_DEATHS
        try:
            raw = relabelled(envelope, ours, without, self._user)
        except (Unreadable, InvalidMessage):
            return False
        if not fits_frame(raw, self._connection.params.frame_max):
            return False
        self._carried.add(tag)
        self._send(Copy(tag, settlement, target, Encoded(raw)))
        return True

    def arrived(self) -> list[tuple[int, Settlement]]:
        """The deliveries, with their tags, that are safe in their queue since the last call."""
        arrived, self._arrived = self._arrived, []
        self._carried.difference_update(tag for tag, _ in arrived)
        return arrived

    def look(self) -> None:
        """Publish again what is due; end the session if the connection failed without saying so."""
        if self._connection.fault:
            self._session.look()
        if self._channel is not None and not self._under_way and not self._later:
            return
        now = monotonic()
        if self._under_way.overdue(now, BLOCKED_TIMEOUT if self._blocked else CONFIRM_TIMEOUT):
            why = BLOCKED if self._blocked else f"no confirmation for {CONFIRM_TIMEOUT:.0f}s"
            self._session.ended(ConnectionLost(self._said(why)))
        if self._channel is None:
            if now > self._channel_due:
                self._session.ended(ConnectionLost(self._said(f"no channel for {ANSWER_TIMEOUT:.0f}s")))
            return
        while self._later and self._later[0][0] <= now:
            self._send(heapq.heappop(self._later)[2])

    def hurry(self) -> None:
        """The process stops: what was refused is tried once more without waiting."""
        later, self._later = self._later, []
        for _, _, copy in later:
            self._send(copy)

    def _send(self, copy: Copy) -> None:
        body = copy.settlement.delivery.body
        if len(body) > self._largest:
            self._refused(copy, str(Oversize(len(body), int(self._largest))))
        elif self._channel is None:
            self._send_later(copy, 0.0)
        else:
            self._publish(copy, copy.target, body, copy.properties)

    def _send_later(self, copy: Copy, delay: float) -> None:
        heapq.heappush(self._later, (monotonic() + delay, next(self._order), copy))

    def _publish(self, copy: Copy | None, target: str, body: bytes, properties: Encoded) -> None:
        assert self._channel is not None
        self._under_way.published(copy, target, NO_TIME if copy is None else monotonic())
        try:
            self._channel.basic_publish("", target, body, properties, mandatory=True)
        except exceptions.AMQPError as error:  # it is closing; the reason is here or on its way
            self._ended(error)

    # --- what the broker says -----------------------------------------------------------------------

    def _on_confirm(self, frame: Method[Any]) -> None:
        self.proven = True
        for copy, refusal in self._under_way.answered(frame.method):
            if copy is None:
                continue
            if refusal:
                self._refused(copy, refusal)
            else:
                self._arrived.append((copy.tag, copy.settlement))

    def _refused(self, copy: Copy, why: str) -> None:
        """Keep it for another try, and log it each time: the operator must free space or create the queue."""
        copy.refusals += 1
        delay = AGAIN.ceiling(copy.refusals)
        self._send_later(copy, delay)
        facts = {
            "queue": copy.settlement.delivery.queue,
            "target": copy.target,
            "delivery_tag": copy.tag,
            "attempt": copy.refusals,
            "delay_ms": round(delay * 1000),
        }
        text = f"{self._said(why)}; the message waits, next try in {delay:.0f}s"
        self._notices.append(Notice(COPY_REFUSED, logging.ERROR, text, facts, copy.settlement.delivery))

    def _on_return(self, _channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        # It comes before the confirmation of the same message.
        self._under_way.came_back(method.routing_key)

    def _on_blocked(self, _connection: object, _frame: object) -> None:
        self._blocked = True

    def _on_unblocked(self, _connection: object, _frame: object) -> None:
        self._blocked = False

    def _on_closed(self, _channel: Channel, error: BaseException) -> None:
        if isinstance(error, exceptions.ChannelClosedByClient):
            return
        if isinstance(error, exceptions.ChannelClosedByBroker) and error.reply_code == 403:
            use = "retry:N" if self._connector.retry_delays else "moving dead letters"
            self._denied = MayNotPublish(
                f"{self._place}: this user may not publish to the default exchange, which {use} needs",
                "give it permission to write to amq.default",
            )
            if not self._proving:
                self._session.ended(self._denied)
            return
        too_large = oversize(error)
        if too_large is None:
            self._ended(error)
        else:
            self._start_over(too_large.limit)

    def _start_over(self, largest: int) -> None:
        """Open another channel; what was under way may have arrived, but nobody will ever say so."""
        self._largest = largest
        self._channel = None
        self._channel_due = monotonic() + ANSWER_TIMEOUT
        under_way, self._under_way = self._under_way.given_up(), Confirms()
        for copy in under_way:
            if copy is not None:
                self._send(copy)
        self._open_channel(lambda _: None)

    def _ended(self, error: BaseException) -> None:
        if self._gone:
            return
        # Before it was ever open the error may be a refusal, which the session recognises.
        self._session.ended(ConnectionLost(self._said(reason(error))) if self._channel else error)

    def _said(self, problem: str) -> str:
        return f"{self._place}, publishing: {problem}"
