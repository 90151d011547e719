"""Reading a dead-letter queue: what was there at the start, once, and given back unless it was removed.

Rule 1: a message that dies again meanwhile goes to the end of the queue; as many as were there at the start
        are read and no more, so it is not seen twice in one run.
Rule 2: nothing is settled but what was removed. A process killed at any point leaves the rest in the queue.
Rule 3: what stays is held until the end, by its tag alone. When that fills a holder's window, another one
        is opened beside it; the first goes on being served.
Rule 4: a quorum queue counts how often it has handed a letter out, and beyond its limit drops it (RB10). A
        letter that comes near that and stays is refreshed: put into the same queue anew, confirmed, and then
        removed. So no number of looks loses it; a process killed in between leaves it there twice.
Rule 5: a read never waits for ever: it is over when the broker says that nothing waits, or hands nothing out
        for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from time import monotonic
from typing import Final, Self

from chronicle.core.deadletters.death import is_worn, unworn
from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.engine.publication import BATCH
from chronicle.engine.reconnect import reach
from chronicle.errors import (
    BrokerRefused,
    ChronicleError,
    ConnectionLost,
    InvalidMessage,
    NoSuchQueue,
    SettingError,
)
from chronicle.transports.catalog import open_publisher, open_transport
from chronicle.transports.seam import Connector, Outgoing, Publisher, Transport

WIDEST: Final = 65535  # messages one consumer may hold; AMQP has room for no larger number
NARROW: Final = 1000  # for those who remove what they read: what the broker may push ahead is held in memory
GROWTH: Final = 8
MOST_DELIVERIES: Final = 3  # far below any sensible limit: a killed look counts as well
TURN: Final = 0.25  # seconds
QUIET: Final = 5.0  # seconds without a message

REMOVED: Final = Verdict(Action.ACK, "removed from the dead letters")


class LetterReader:
    """The dead letters of one queue, read from the oldest on; used in a `with` block."""

    def __init__(
        self,
        connector: Connector,
        window: int,
        *,
        most_deliveries: int = MOST_DELIVERIES,
        startup_timeout: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`connector` names the dead-letter queue itself; `window` is how many may be held at first.

        What stays of the letters that a quorum queue handed out `most_deliveries` times is refreshed.
        """
        self._connector = connector
        self._window = min(window, WIDEST)
        self._most_deliveries = most_deliveries
        self._startup_timeout = startup_timeout
        self._tell = tell
        self._clock = clock
        self._holders: list[Transport] = []
        self._held = 0  # by the last holder
        self._quiet = 0.0
        self._saw_empty = False
        self._stopped = False
        self._worn: list[Delivery] = []  # of the last batch, and not removed
        self._publisher: Publisher | None = None
        self._opened = ExitStack()
        self.refreshed = 0
        self.present = 0
        self.seen = 0

    def __enter__(self) -> Self:
        try:
            self.present = reach(self._open_one, self._startup_timeout, self._tell)
        except NoSuchQueue:
            raise NoSuchQueue(
                f"there is no queue {self._connector.queue!r} of dead letters",
                "nothing has died yet, or they are kept elsewhere: name that queue with --dlq",
            ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is None:
                self._refresh_the_last()
            elif issubclass(kind, Exception):
                with suppress(ChronicleError):  # what is under way says more
                    self._refresh_the_last()
        finally:
            for holder in self._holders:
                holder.close()
            self._opened.close()
        if self.refreshed:
            self._tell(
                f"{self.refreshed} of these dead letters were put into {self._connector.queue} anew: this "
                "quorum queue counts how often it hands one out, and drops it beyond its limit"
            )

    def read(self, room: int) -> Sequence[Delivery] | None:
        """At most so many of the next ones, perhaps none yet; None when there are no more.

        Everything read before must be decided by then: removed, or left to stay. Raises ConnectionLost.
        """
        self._refresh()
        left = self.present - self.seen
        if left <= 0:
            self._take_no_more()
            return None
        if self._held >= self._window:
            self._window = min(self._window * GROWTH, WIDEST)
            self._open_one()
        began = self._clock()
        batch = self._turn(min(room, left), TURN)
        if batch:
            self._worn = [delivery for delivery in batch if is_worn(delivery, self._most_deliveries)]
            self._quiet, self._saw_empty = 0.0, False
            self.seen += len(batch)
            self._held += len(batch)
            return batch
        self._quiet += self._clock() - began
        if self._saw_empty or self._quiet >= QUIET:
            return None
        # What the broker pushed before it answered is here by now: the turn that follows brings it.
        self._saw_empty = bool(self._holders[-1].is_empty())
        return ()

    def remove(self, batch: Sequence[Delivery]) -> None:
        """Take these, just read, out of the queue. Raises ConnectionLost: then they may still be there."""
        work = [Settlement(delivery, Synced(), REMOVED) for delivery in batch]
        settled = self._holders[-1].settle(work)
        self._held -= len(work)
        gone = set(batch)
        self._worn = [delivery for delivery in self._worn if delivery not in gone]
        if len(settled) < len(work) or any(one.fate is not Fate.DONE for one in settled):
            raise ConnectionLost(f"{self._holders[-1].place}: some dead letters could not be removed")

    def serve(self, seconds: float) -> None:
        """Keep the connections alive and take nothing in."""
        self._turn(0, seconds)

    def _turn(self, room: int, timeout: float) -> Sequence[Delivery]:
        *earlier, last = self._holders
        for holder in earlier:
            holder.receive(0, 0.0)  # for its heartbeats
        return last.receive(room, timeout)

    def _refresh_the_last(self) -> None:
        """Refresh what was read last, and what the broker pushed ahead and nobody read."""
        self._refresh()
        self._take_no_more()
        while batch := self._turn(WIDEST, 0.0):
            self._held += len(batch)
            self._worn = [delivery for delivery in batch if is_worn(delivery, self._most_deliveries)]
            self._refresh()

    def _refresh(self) -> None:
        while self._worn:
            self._put_anew(self._worn[:BATCH])
            self.serve(0.0)

    def _put_anew(self, piece: Sequence[Delivery]) -> None:
        """Publish to the same queue, confirm, remove; raises SettingError when that is not possible."""
        try:
            self._own_publisher().publish(
                [Outgoing(one.body, unworn(one.headers), one.properties) for one in piece]
            )
        except (BrokerRefused, InvalidMessage) as error:
            if isinstance(error, InvalidMessage) and len(piece) > 1:
                for one in piece:
                    self._put_anew([one])
                return
            raise SettingError(
                "this quorum queue counts how often it hands a dead letter out and drops it beyond its limit "
                f"(20 unless set otherwise); one that wears out cannot be put there anew: {error}",
                "do not look again: redrive or drop it, with a user who may publish to the dead letters",
            ) from None
        self.remove(piece)
        self.refreshed += len(piece)

    def _own_publisher(self) -> Publisher:
        if self._publisher is None:
            self._publisher = self._opened.enter_context(open_publisher(self._connector))
        return self._publisher

    def _open_one(self) -> int:
        transport = open_transport(replace(self._connector, prefetch=self._window))
        try:
            waiting = transport.open(lambda: False)
        except BaseException:
            transport.close()
            raise
        self._holders.append(transport)
        self._held = 0
        return waiting or 0

    def _take_no_more(self) -> None:
        """Leave what dies from now on alone: what the broker pushes, it marks as redelivered."""
        if not self._stopped:
            self._stopped = True
            for holder in self._holders:
                holder.stop(QUIET)
