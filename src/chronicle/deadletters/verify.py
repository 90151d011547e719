"""Running today's syncer over dead letters where they lie: a transport around the dead-letter queue's own.

Rule 1: what the syncer took (True) is removed. Everything else stays, with today's reason: it is published
        to the same queue again, confirmed, and then the old one is removed.
Rule 2: as many as were there at the start are handed out and no more; those that stay go to the end.
Rule 3: a letter that cannot be published again, and one whose answer was fatal, stays exactly as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic, time

from chronicle.core.deadletters.conditions import Condition, matches
from chronicle.core.deadletters.death import came_from, failed_again
from chronicle.core.deadletters.letter import letter_of
from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.deadletters.reader import QUIET, REMOVED
from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, InvalidMessage
from chronicle.transports.seam import Closing, Outgoing, Publisher, Transport


class VerifyTransport:
    """The dead letters of a queue as the engine sees them."""

    def __init__(
        self,
        inner: Transport,
        publisher: Callable[[], Publisher],
        queue: str,
        consumer: str,
        *,
        conditions: tuple[Condition, ...] = (),
        limit: int | None = None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        """`inner` and `publisher` are for the dead-letter queue, `queue` is the one it belongs to."""
        # A delay a syncer asks for means nothing here, so nothing must wait for it.
        self.promises = replace(inner.promises, delays=True, counts=True)
        self.machine = inner.machine
        self.notices = inner.notices
        self._inner = inner
        self._make_publisher = publisher
        self._publisher: Publisher | None = None
        self._opened = ExitStack()
        self._queue = queue
        self._consumer = consumer
        self._conditions = conditions
        self._limit = limit
        self._clock = clock
        self._now = now
        self._last = 0.0  # when a letter came, or intake was opened
        self._left = 0  # may still be handed out on this connection
        self._held: set[Delivery] = set()  # of this connection
        self._settled = 0
        self._taking = False
        self.present: int | None = None
        self.tried = 0
        self.others = 0  # did not match

    @property
    def place(self) -> str:
        return self._inner.place

    def open(self, stopping: Callable[[], bool]) -> int | None:
        waiting = self._inner.open(stopping)
        if stopping():
            return waiting
        self._publisher = self._opened.enter_context(self._make_publisher())
        if self.present is None:
            self.present = waiting or 0
        self._left, self._taking, self._last = self.present - self._settled, True, self._clock()
        self._held.clear()
        self.others = 0
        return waiting

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        if self._taking and not self._room():
            self._take_no_more()
        batch = self._inner.receive(min(room, self._room()), timeout)
        now = self._clock()
        if batch or not room:
            self._last = now
        elif self._taking and now - self._last >= QUIET:
            self._take_no_more()  # the broker hands out no more, whatever it says about the depth
        self._left -= len(batch)
        meant = [delivery for delivery in batch if self._is_meant(delivery)]
        self._held.update(meant)
        self.others += len(batch) - len(meant)
        self.tried += len(meant)
        return meant

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        for one in work:
            # What came on a connection that is gone is with the broker; a copy would make it two.
            one.fate = Fate.OPEN if one.delivery in self._held else Fate.STALE
        mine = [one for one in work if one.fate is Fate.OPEN]
        failing = [one for one in mine if one.verdict.action is not Action.ACK]
        for one in failing:
            one.verdict = Verdict(Action.DEAD_LETTER, one.verdict.reason)
        for one in self._not_published_again(failing):
            one.fate = Fate.FAILED
            one.error = "it stays with its old reason: it could not be published again"
        done = [one for one in mine if one.fate is Fate.OPEN]
        removals = [Settlement(one.delivery, one.outcome, REMOVED) for one in done]
        self._inner.settle(removals)
        for one, removal in zip(done, removals, strict=True):
            one.fate = removal.fate
            self._settled += removal.fate is Fate.DONE
        return work

    def is_empty(self) -> bool | None:
        return self._inner.is_empty() if self._taking else True

    def stop(self, patience: float) -> None:
        self._taking = False
        self._inner.stop(patience)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self._inner.close(why)
        self._opened.close()

    def wake(self) -> None:
        self._inner.wake()

    def fileno(self) -> int | None:
        return None  # it hands out what it holds, too: the inner one alone cannot tell

    def _room(self) -> int:
        """How many more may be handed out."""
        if not self._taking:
            return 0
        return self._left if self._limit is None else min(self._left, self._limit - self.tried)

    def _take_no_more(self) -> None:
        """Leave those that stay, now at the end of the queue, to the broker."""
        self._taking = False
        self._inner.stop(QUIET)

    def _is_meant(self, delivery: Delivery) -> bool:
        if not self._conditions:
            return True
        return matches(letter_of(delivery, self._queue), self._conditions, self._milliseconds())

    def _not_published_again(self, failing: Sequence[Settlement]) -> Sequence[Settlement]:
        """Publish these with today's reason; those for which that was not possible."""
        faulty = [one for one in failing if one.delivery.envelope.fault]
        sound = [one for one in failing if not one.delivery.envelope.fault]
        if not sound or self._publisher is None:
            return failing
        try:
            self._publisher.publish([self._again(one) for one in sound])
            return faulty
        except InvalidMessage:
            if len(sound) == 1:
                return failing
            return [*faulty, *(left for one in sound for left in self._not_published_again([one]))]
        except BrokerRefused:
            return failing
        except BrokerUnreachable as error:
            raise ConnectionLost(str(error)) from None

    def _again(self, settlement: Settlement) -> Outgoing:
        delivery, reason = settlement.delivery, settlement.verdict.reason
        home = came_from(delivery, self._queue)
        headers = failed_again(delivery, reason, self._consumer, self._milliseconds(), home)
        return Outgoing(delivery.body, headers, delivery.properties)

    def _milliseconds(self) -> int:
        return int(self._now() * 1000)
