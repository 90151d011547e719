"""A reader for brokers that deliver a message and take it back when it is not settled.

Rule 1: everything is received, only what is removed is settled, and the rest is returned at the end. A
        process killed at any point leaves it in the queue.
Rule 2: a broker delivers only so many messages to one consumer. To read more, another consumer is opened; the
        earlier ones take no more, hold on to theirs and are kept alive.
Rule 3: all consumers stop before the first one closes, since one with room left would be handed the others'
        messages; and they close in the order they were opened, so that the queue keeps its order.
Rule 4: as many as were there at the start are read and no more: what is published meanwhile goes to the end.
Rule 5: nothing waits forever. It ends when the broker says that nothing is waiting, or delivers nothing for a
        while: other consumers hold the rest, or it is delayed.
Rule 6: what was removed is known to be: the broker has answered a question that came after the removal. Some
        brokers answer no acknowledgement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from time import monotonic
from typing import Any, Final, NamedTuple

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.outcome import Synced
from chronicle.core.policy import ACKED
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import BrokerError, BrokerUnreachable, ConnectionLost
from chronicle.transports.seam import Closing, Connector, Outgoing, Reading, Transport, never

WIDEST: Final = 65535  # messages one consumer may hold; the largest number AMQP can express
GROWTH: Final = 8
QUIET: Final = 5.0  # seconds without a message
TURN: Final = 0.05  # seconds


class Held(NamedTuple):
    """The handle of what was read: which transport holds it, and that transport's own handle."""

    holder: Transport
    handle: Any


class HoldingReader:
    """Reads one queue through as many transports as it takes."""

    moves = False  # such a broker moves nothing; who wants that publishes first

    def __init__(
        self,
        make: Callable[[Connector], Transport],
        connector: Connector,
        reading: Reading,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        unopened = make(connector)
        self.transport = unopened.promises.transport
        self.place = unopened.place
        self.notices: deque[Notice] = deque()
        self.present = 0
        self._make = make
        self._connector = connector
        self._reading = reading
        self._clock = clock
        self._holders: list[Transport] = []
        self._reset()

    def _reset(self) -> None:
        self._window = min(self._reading.ahead or WIDEST, WIDEST)
        self._held = 0  # by the last holder
        self._seen = 0
        self._quiet = 0.0
        self._saw_empty = False

    def open(self, stopping: Callable[[], bool]) -> None:
        self._reset()
        self.present = self._open_another(stopping)

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        left = self.present - self._seen
        if left <= 0 or not self._holders:
            self.stop(QUIET)  # no more deliveries: the broker marks everything it delivers
            return None
        if self._held >= self._window:
            self._window = min(self._window * GROWTH, WIDEST)
            self._holders[-1].stop(QUIET)
            try:
                self._open_another(never)
            except BrokerUnreachable as error:
                raise ConnectionLost(str(error)) from None
        began = self._clock()
        batch = self._turn(min(room, left), timeout)
        if batch:
            self._quiet, self._saw_empty = 0.0, False
            self._seen += len(batch)
            return batch
        self._quiet += self._clock() - began
        if self._saw_empty or self._quiet >= QUIET:
            return None
        # What the broker pushed before it answered is here by now: the next turn returns it.
        self._saw_empty = bool(self._holders[-1].is_empty())
        return ()

    def remove(self, batch: Sequence[Delivery]) -> None:
        by_holder: dict[Transport, list[Settlement]] = {}
        for delivery in batch:
            held: Held = delivery.handle
            its_own = copy(delivery)
            its_own.handle = held.handle
            by_holder.setdefault(held.holder, []).append(Settlement(its_own, Synced(), ACKED))
        for holder, work in by_holder.items():
            if holder not in self._holders:
                raise ConnectionLost(f"{self.place}: the connection it was read on is closed")
            settled = list(holder.settle(work))
            deadline = self._clock() + QUIET
            while len(settled) < len(work) and self._clock() < deadline:  # a locked file takes a while
                holder.receive(0, TURN)
                settled += holder.settle(())
            if holder is self._holders[-1]:
                self._held -= len(work)
            if len(settled) < len(work) or any(one.fate is not Fate.DONE for one in settled):
                raise ConnectionLost(f"{self.place}: some messages could not be removed")
            holder.is_empty()  # for the sake of the answer (Rule 6)

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        del batch, queue
        raise AssertionError("it does not move: publish, and then remove")

    def serve(self, timeout: float = 0.0) -> None:
        if self._holders:
            self._turn(0, timeout)

    def stop(self, patience: float) -> None:
        for holder in self._holders[-1:]:  # the earlier ones have stopped
            holder.stop(patience)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        # Also after a lost connection: if one of several is lost, the others still keep their order.
        how = Closing.DEADLINE if why is Closing.DEADLINE else Closing.SETTLED
        if len(self._holders) > 1 and how is Closing.SETTLED:
            with suppress(BrokerError):
                self.stop(QUIET)
        holders, self._holders = self._holders, []
        for holder in holders:
            holder.close(how)

    def wake(self) -> None:
        for holder in self._holders[-1:]:
            holder.wake()

    def _open_another(self, stopping: Callable[[], bool]) -> int:
        transport = self._make(replace(self._connector, prefetch=self._window))
        try:
            waiting = transport.open(stopping)
        except BaseException:
            transport.close()
            raise
        if stopping():
            transport.close()
            return 0
        self._holders.append(transport)
        self._held = 0
        return waiting or 0

    def _turn(self, room: int, timeout: float) -> Sequence[Delivery]:
        *earlier, last = self._holders
        for holder in earlier:
            holder.receive(0, 0.0)  # for its heartbeats
        batch = last.receive(room, timeout)
        self._held += len(batch)
        for delivery in batch:
            delivery.handle = Held(last, delivery.handle)
        for holder in self._holders:
            self.notices.extend(holder.notices)
            holder.notices.clear()
        return batch
