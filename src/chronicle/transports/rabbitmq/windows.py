"""The consumers on one channel: together they have as much room as the prefetch, whatever is put aside.

The broker counts what is unacknowledged per consumer, and lets nobody change a consumer's prefetch. What is
put aside stays unacknowledged, so a further consumer makes up for the places it takes, and a consumer whose
places are all taken for good is cancelled. There are never more consumers than the prefetch.
A queue with single active consumer sends to one of them only, so there a place is made up for with that
cancel; nothing tells us that it is such a queue (docs/rabbitmq.md says what its broker makes of it).

The engine may ask for more room than that for a while: a further consumer has it. When the engine has enough
of it, that consumer is cancelled as soon as nothing can be on its way to it: a quorum queue takes back what
reaches the channel after the cancel, calls it delivered, and seems to be empty meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from pika.channel import Channel

from chronicle.transports.rabbitmq.acks import TagLedger
from chronicle.transports.rabbitmq.codec.frames import Arrival

LONGEST_TAG: Final = 60  # characters, of which each may be four of AMQP's 255 bytes
LULL: Final = 2.0  # seconds in which nothing came: the queue has nothing more to send


class Windows:
    """Who consumes a queue on this channel, and how many more places each of them has."""

    def __init__(self, channel: Channel, queue: str, tag: str) -> None:
        self._channel = channel
        self._queue = queue
        self._tag = tag
        self._places: dict[str, int] = {}  # by consumer tag: places that are not taken for good
        self._opened = 0
        self._missing = 0  # places put aside that no consumer makes up for yet
        self._wider: list[str] = []  # consumers that were opened because more room was asked for
        self._lent = 0  # their places
        self._newest = 0  # the last tag that came while there were such consumers
        self._came = 0.0  # and when that was noticed
        self.places = 0  # how many there may be unacknowledged, with what was put aside
        self._stopped = False

    def prefetch(self, places: int, done: Callable[[Any], None] | None = None) -> None:
        """Say how many the next consumer is sent at a time; `done` is called with the broker's answer."""
        self._channel.basic_qos(prefetch_count=places, callback=done)

    def consume(self, places: int, done: Callable[[Any], None] | None = None) -> str:
        """Begin to consume so many at a time, which the broker was told before; the consumer's tag."""
        self._opened += 1
        tag = self._tag if self._opened == 1 else f"{self._tag[:LONGEST_TAG]}+{self._opened}"
        self._places[tag] = places
        self.places += places
        self._channel.basic_consume(self._queue, _never, auto_ack=False, consumer_tag=tag, callback=done)
        return tag

    def fit(self, room: int, ledger: TagLedger, arrived: Sequence[Arrival]) -> int:
        """See to it that as many may be unacknowledged as there is room for; how many may be now.

        Nothing waits for the broker's answers.
        """
        wanted = room + len(ledger)
        if self._stopped or wanted == self.places:
            return self.places
        if wanted > self.places:
            more = wanted - self.places
            self.prefetch(more)
            self._wider.append(self.consume(more))
            self._lent += more
            self._came = monotonic()
        elif self._wider and self._is_still(room, ledger, arrived) and wanted <= self.places - self._lent:
            for tag in self._wider:
                if self._places.pop(tag, None) is not None:
                    self._channel.basic_cancel(tag)
            self._wider.clear()
            self.places -= self._lent
            self._lent = 0
        return self.places

    def _is_still(self, room: int, ledger: TagLedger, arrived: Sequence[Arrival]) -> bool:
        """Whether nothing can be on its way: all places are taken, or nothing has come for a while.

        Without room it is not known how much is wanted, so then it waits for the first.
        """
        now, newest = monotonic(), arrived[-1].tag if arrived else ledger.newest
        if newest != self._newest:
            self._newest, self._came = newest, now
        is_full = len(ledger) + len(arrived) >= self.places
        return is_full or (room > 0 and now - self._came >= LULL)

    def put_aside(self, consumer: bytes) -> None:
        """A delivery to this consumer stays unacknowledged until the channel closes."""
        tag = consumer.decode()
        if tag in self._places:
            self._missing += 1
            self._places[tag] -= 1
        else:  # that consumer is gone, and so is its place
            self.places += 1

    def make_up(self) -> None:
        """Replace what was put aside since the last call; nothing waits for the broker's answers."""
        missing, self._missing = self._missing, 0
        if not missing or self._stopped:
            return
        full = [tag for tag, places in self._places.items() if not places]
        self.prefetch(missing)
        self.consume(missing)
        for tag in full:
            del self._places[tag]
            self._channel.basic_cancel(tag)

    def stop(self, done: Callable[[Any], None]) -> None:
        """Cancel them all; `done` is called when the broker has cancelled the last."""
        self._stopped = True
        *others, last = self._places
        for tag in others:
            self._channel.basic_cancel(tag)
        self._channel.basic_cancel(last, callback=done)


def _never(*_: object) -> None:
    raise AssertionError("deliveries never reach pika")
