"""Running the current syncer over dead letters in place: a transport around a reader of their queue.

Rule 1: what the syncer handled (True) is removed. Everything else stays, with the new reason: it moves to the
        end of the queue in one step, if the reader can do that; else it is published to the same queue again,
        confirmed, and then the old copy is removed.
Rule 2: as many as were there at the start are handed out and no more; those that stay go to the end.
Rule 3: a letter that cannot be published again, and one that is not handled because the run ends, stays
        exactly as it is.
Rule 4: the reader and the publisher open and close together. What was read before that is stale: the broker
        has it, and publishing it again would duplicate it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from time import time
from typing import Final

from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.conditions import Condition, matches
from chronicle.core.deadletters.death import came_from, failed_again
from chronicle.core.deadletters.letter import letter_of
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, InvalidMessage
from chronicle.transports.batches import publish_batches, send_batches
from chronicle.transports.seam import Closing, Outgoing, Promises, Publisher, Reader

ANSWER: Final = 5.0  # seconds for the broker to answer


class VerifyTransport:
    """The dead letters of a queue as the engine sees them."""

    away = 0.0
    unconfirmed = 0

    def __init__(
        self,
        reader: Reader,
        publisher: Callable[[], Publisher],
        queue: str,
        consumer: str,
        *,
        conditions: tuple[Condition, ...] = (),
        limit: int | None = None,
        max_body: int = MAX_BODY,
        now: Callable[[], float] = time,
    ) -> None:
        """`reader` and `publisher` are for the dead-letter queue, `queue` is the one it belongs to."""
        self.promises = Promises(reader.transport, counts=True)
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices = reader.notices
        self._reader = reader
        self._make_publisher = publisher
        self._publisher: Publisher | None = None
        self._opened = ExitStack()
        self._queue = queue
        self._consumer = consumer
        self._conditions = conditions
        self._limit = limit
        self._max_body = max_body
        self._now = now
        self._taking = False
        self._waiting = 0  # when this connection was made, at most
        self._left = 0  # may still be handed out on this connection
        self._held: set[Delivery] = set()  # handed out on this connection, and not settled
        self._settled = 0
        self.present: int | None = None
        self.tried = 0
        self.others = 0  # did not match
        self.vanished = 0  # failed, but somebody else had moved or removed it meanwhile

    @property
    def place(self) -> str:
        return self._reader.place

    @property
    def depth(self) -> int | None:
        return self._room() if self.present is not None else None

    def open(self, stopping: Callable[[], bool]) -> int | None:
        self.machine.fire(EmbeddedEvent.OPEN)
        self._reader.open(stopping)
        if stopping():
            return None
        if not self._reader.moves:
            self._publisher = self._opened.enter_context(self._make_publisher())
        waiting = self._waiting = self._reader.present
        if self.present is None:
            self.present = waiting
        self._left, self._taking, self.others = self.present - self._settled, True, 0
        self.machine.fire(EmbeddedEvent.OPENED)
        return waiting

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        wanted = min(room, self._room())
        if not wanted:
            self._reader.serve(timeout)
            return ()
        batch = self._reader.read(wanted, timeout)
        if batch is None:
            self._taking = False
            assert self.present is not None
            self.present -= self._waiting - self._reader.present
            return ()
        self._left -= len(batch)
        meant = [delivery for delivery in batch if self._is_meant(delivery)]
        self._held.update(meant)
        self.others += len(batch) - len(meant)
        self.tried += len(meant)
        if not self._room():
            # What comes now are the letters that stayed, from the end of the queue: leave them to the broker.
            self._reader.stop(ANSWER)
        return meant

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        removable: list[Settlement] = []
        failing: list[Settlement] = []
        for one in work:
            if one.delivery not in self._held:
                one.fate = Fate.STALE
            elif one.verdict.action is Action.LEAVE:
                one.fate = Fate.DONE
            elif one.verdict.action is Action.ACK:
                removable.append(one)
            else:
                failing.append(one)
        if self._reader.moves:
            self._move_to_the_end(failing)
        else:
            # Published before anything is removed: if this raises, the broker still has all of them.
            removable += self._published_again(failing)
        if removable:
            self._reader.remove([one.delivery for one in removable])
            self._settled += len(removable)
        for one in removable:
            one.fate = Fate.DONE
        self._held.difference_update(one.delivery for one in work)
        return work

    def is_empty(self) -> bool | None:
        return not self._room()

    def stop(self, patience: float) -> None:
        self._taking = False
        self.machine.fire(EmbeddedEvent.STOP)
        self._reader.stop(patience)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self._taking = False
        self._held.clear()
        self._publisher = None
        self._opened.close()
        self._reader.close(why)
        if why is not Closing.LOST:
            self.machine.fire(EmbeddedEvent.STOP)
        self.machine.fire(EmbeddedEvent(why))

    def wake(self) -> None:
        self._reader.wake()

    def fileno(self) -> int | None:
        return None  # what the reader has fetched ahead makes no descriptor readable

    def _room(self) -> int:
        """How many more may be handed out."""
        if not self._taking:
            return 0
        return self._left if self._limit is None else min(self._left, self._limit - self.tried)

    def _is_meant(self, delivery: Delivery) -> bool:
        if not self._conditions:
            return True
        letter = letter_of(delivery, self._queue, self._max_body)
        return matches(letter, self._conditions, self._milliseconds())

    def _move_to_the_end(self, failing: Sequence[Settlement]) -> None:
        """Move these with the new reason, each of them at once here and no longer there."""

        def move(batch: Sequence[tuple[Settlement, Outgoing]]) -> Sequence[Delivery]:
            letters = [(one.delivery, message) for one, message in batch]
            return self._reader.move(letters, letters[0][0].queue)

        with suppress(BrokerRefused):  # it may accept them another time
            for batch, went in send_batches(move, _sound(failing), self._again):
                if isinstance(went, InvalidMessage):
                    continue
                for one in batch:
                    one.fate = Fate.DONE if one.delivery in went else Fate.STALE
                self.vanished += len(batch) - len(went)
                self._settled += len(batch)
        _keep([one for one in failing if one.fate is Fate.OPEN])

    def _published_again(self, failing: Sequence[Settlement]) -> Sequence[Settlement]:
        """Publish these with the new reason; returns those that could be. Raises ConnectionLost."""
        again: list[Settlement] = []
        if sound := _sound(failing):
            assert self._publisher is not None
            try:
                for batch, problem in publish_batches(
                    self._publisher, sound, self._again, self._reader.serve
                ):
                    again += batch if problem is None else ()
            except BrokerRefused:
                pass  # it may accept them another time
            except BrokerUnreachable as error:
                raise ConnectionLost(str(error)) from None
        _keep([one for one in failing if one not in again])
        return again

    def _again(self, settlement: Settlement) -> Outgoing:
        delivery, reason = settlement.delivery, settlement.verdict.reason
        home = came_from(delivery, self._queue)
        headers = failed_again(delivery, reason, self._consumer, self._milliseconds(), home)
        return Outgoing(delivery.body, headers, delivery.properties)

    def _milliseconds(self) -> int:
        return int(self._now() * 1000)


def _sound(failing: Sequence[Settlement]) -> list[Settlement]:
    """Those whose headers could be read: the others would lose them."""
    return [one for one in failing if not one.delivery.envelope.fault]


def _keep(failing: Sequence[Settlement]) -> None:
    """These stay exactly as they are."""
    for one in failing:
        one.fate = Fate.FAILED
        one.error = "it stays with its old reason: it could not be published again"
