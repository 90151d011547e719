"""Reading a RabbitMQ queue: hold the messages and return them, with care for quorum queues.

Rule (RB10): a quorum queue counts how often it has delivered a message, and beyond its limit drops or
        dead-letters it. One that comes near that is refused; or, if it stays, refreshed: republished to the
        same queue, confirmed, and then removed. So looking never loses a dead letter, however often; a
        process killed in between leaves it there twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from chronicle.core.deadletters.death import is_worn, unworn
from chronicle.core.delivery import Delivery, count
from chronicle.core.notice import Notice
from chronicle.core.words import noun
from chronicle.errors import BrokerRefused, SettingError
from chronicle.transports.batches import publish_batches
from chronicle.transports.holding_reader import QUIET, WIDEST, HoldingReader
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.rabbitmq.publisher import RabbitPublisher
from chronicle.transports.seam import Closing, Connector, OnWorn, Outgoing, Publisher, Reading

REFRESHED = "queue.refreshed"
WEARING = "queue.wearing"
LIMIT = "beyond its limit (20 unless set otherwise)"


class RabbitReader(HoldingReader):
    """Reads one queue through consumers that settle nothing but what is removed."""

    def __init__(self, connector: Connector, reading: Reading) -> None:
        super().__init__(partial(RabbitTransport, only_looks=True), connector, reading)
        self._worn: list[Delivery] = []  # of what was read last, and not removed
        self._refreshed = 0
        self._unsendable = 0
        self._publisher: Publisher | None = None
        self._opened = ExitStack()

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        """Before the next call, the caller removes what is to go: of the rest, what is worn is refreshed."""
        self._refresh()
        batch = super().read(room, timeout)
        self._look_for_worn(batch or ())
        return batch

    def remove(self, batch: Sequence[Delivery]) -> None:
        super().remove(batch)
        gone = set(batch)
        self._worn = [delivery for delivery in self._worn if delivery not in gone]

    def close(self, why: Closing = Closing.SETTLED) -> None:
        try:
            if why is Closing.SETTLED and self._reading.on_worn is OnWorn.REFRESH:
                self._refresh_the_last()
        finally:
            self._worn.clear()
            super().close(why)
            self._opened.close()
            self._publisher = None
            self._tell_of_refreshed()

    def _look_for_worn(self, batch: Sequence[Delivery]) -> None:
        if self._reading.on_worn is OnWorn.LEAVE:
            return
        worn = [delivery for delivery in batch if is_worn(delivery, self._reading.worn_after)]
        if worn and self._reading.on_worn is OnWorn.REFUSE:
            most = max(count(delivery.headers.get("x-delivery-count")) for delivery in worn)
            raise SettingError(
                f"the broker has delivered a message of this queue {most} times before, and {LIMIT} a "
                "quorum queue dead-letters or drops it",
                "do not read it again: consume it, or allow more with --max-deliveries",
            )
        self._worn = worn

    def _refresh_the_last(self) -> None:
        """Refresh what was read last, and what the broker pushed ahead and was not read."""
        if not self._holders:
            return
        self._refresh()
        self.stop(QUIET)
        while batch := self._turn(WIDEST, 0.0):
            self._look_for_worn(batch)
            self._refresh()

    def _refresh(self) -> None:
        """Republish what is worn to the same queue and remove it; SettingError when that is not possible."""
        if not self._worn:
            return
        try:
            for batch, problem in publish_batches(
                self._own_publisher(), list(self._worn), _as_it_was, self.serve
            ):
                if problem is not None:
                    self._unsendable += 1  # the trouble of this message: the others are still read
                    continue
                self.remove(batch)
                self._refreshed += len(batch)
        except BrokerRefused as refusal:
            raise _not_refreshed(refusal) from None
        self._worn = []

    def _own_publisher(self) -> Publisher:
        if self._publisher is None:
            self._publisher = self._opened.enter_context(RabbitPublisher(self._connector))
        return self._publisher

    def _tell_of_refreshed(self) -> None:
        refreshed, self._refreshed = self._refreshed, 0
        if refreshed:
            text = (
                f"{refreshed} of these messages {noun(refreshed, 'was', 'were')} republished to "
                f"{self._connector.queue}: this quorum "
                "queue counts how often it delivers one, and drops it beyond its limit"
            )
            self.notices.append(Notice(REFRESHED, logging.WARNING, text, {"count": refreshed}))
        unsendable, self._unsendable = self._unsendable, 0
        if unsendable:
            text = (
                f"{unsendable} of these messages cannot be republished, because no client can send their "
                f"headers: each look counts, and {LIMIT} this quorum queue drops them; export them, and drop "
                "them from the queue"
            )
            self.notices.append(Notice(WEARING, logging.WARNING, text, {"count": unsendable}))


def _as_it_was(delivery: Delivery) -> Outgoing:
    return Outgoing(delivery.body, unworn(delivery.headers), delivery.properties)


def _not_refreshed(why: Exception) -> SettingError:
    return SettingError(
        f"this quorum queue counts how often it delivers a message and drops it {LIMIT}; one that comes near "
        f"it cannot be republished: {why}",
        "do not look again: redrive or drop it, with a user who may publish to this queue",
    )
