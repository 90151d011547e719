"""Moving dead letters back to work.

Rule 1: a reader that moves messages does it in one step. Else: publish, confirm, then remove (RB7), and a
        process killed in between leaves at most one batch in both queues, and never a message in neither.
Rule 2: a stop is obeyed between two batches, so what was published is also removed.
Rule 3: a target that refuses, or is missing, does not hold up the rest: its messages stay, and the others go.
        A redrive creates no queue: a slip in a name would be one that nobody consumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Final, TypeAlias

from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.death import revived
from chronicle.core.deadletters.letter import Letter, letter_of
from chronicle.core.deadletters.moves import Go, Move, RedrivePlan, Stay, Why, decide_move
from chronicle.core.delivery import Delivery
from chronicle.core.rate_limit import RateLimit
from chronicle.engine.publication import reached
from chronicle.engine.reconnect import TURN
from chronicle.errors import BrokerRefused, InvalidMessage
from chronicle.transports.batches import BATCH, send_batches
from chronicle.transports.seam import Connector, Outgoing, Publisher, Reader

Pair: TypeAlias = tuple[Delivery, Letter]

NAMED: Final = 20  # letters that a report lists
HOMES: Final = 1000  # queues that are told apart: a header can name any


@dataclass(slots=True)
class Tally:
    """What became of the dead letters so far."""

    present: int = 0
    seen: int = 0
    gone: Counter[str] = field(default_factory=Counter)  # by the queue they went to
    vanished: int = 0  # somebody else moved or removed them meanwhile
    stays: Counter[Why] = field(default_factory=Counter)
    kept_back: list[tuple[Letter, Why]] = field(default_factory=list)  # some of those that matched and stay
    homes: Counter[str] = field(default_factory=Counter)  # of those that stay for want of consent
    refusals: dict[str, BrokerRefused] = field(default_factory=dict)  # by the queue that refused
    stopped: str = ""  # the signal that ended it early

    @property
    def moved(self) -> int:
        return self.gone.total()

    @property
    def failed(self) -> int:
        """Those that should have gone but stay."""
        return self.stays.total() - self.stays[Why.OTHER]

    def stay(self, letter: Letter, why: Why) -> None:
        self.stays[why] += 1
        if why is Why.ELSEWHERE and (letter.home in self.homes or len(self.homes) < HOMES):
            self.homes[letter.home] += 1
        if why is not Why.OTHER and len(self.kept_back) < NAMED:
            self.kept_back.append((letter, why))


class Redrive:
    """One pass over the dead letters of a queue."""

    def __init__(
        self,
        letters: Reader,
        connector: Connector,
        plan: RedrivePlan,
        *,
        limit: int | None = None,
        rate: float = float("inf"),
        dry_run: bool = False,
        max_body: int = MAX_BODY,
        startup_timeout: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        """`connector` names the main queue; `rate` is per second."""
        self.tally = Tally()
        self._letters = letters
        self._connector = connector
        self._plan = plan
        self._limit = limit
        self._dry_run = dry_run
        self._max_body = max_body
        self._startup_timeout = startup_timeout
        self._tell = tell
        self._clock = clock
        self._now = now
        self._pace = RateLimit(rate, clock())
        self._publishers: dict[str, Publisher] = {}
        self._open = ExitStack()

    def stop(self, reason: str) -> None:
        """End after this batch. Safe in a signal handler."""
        self.tally.stopped = reason

    def run(self, advance: Callable[[int], None]) -> Tally:
        """Work through all that were there at the start; raises BrokerError, with the tally still correct."""
        self.tally.present = self._letters.present
        with self._open:
            while not self.tally.stopped and (wanted := self._wanted()):
                room = self._pace.room(self._clock(), wanted)
                if not room:
                    self._letters.serve(min(self._pace.wait(), TURN))
                    continue
                batch = self._letters.read(room, TURN)
                if batch is None:
                    self.tally.present = self._letters.present
                    break
                self._work_on(batch)
                advance(len(batch))
        return self.tally

    def _wanted(self) -> int:
        return BATCH if self._limit is None else min(BATCH, self._limit - self.tally.moved)

    def _work_on(self, batch: Sequence[Delivery]) -> None:
        now = int(self._now() * 1000)
        going: dict[str, list[Pair]] = {}
        self.tally.seen += len(batch)
        for delivery in batch:
            letter = letter_of(delivery, self._connector.queue, self._max_body)
            move: Move = decide_move(letter, self._plan, now)
            match move:
                case Go(queue=queue):
                    going.setdefault(queue, []).append((delivery, letter))
                case Stay(why=why):
                    self.tally.stay(letter, why)
        for queue, pairs in going.items():
            self._send(queue, pairs)

    def _send(self, queue: str, pairs: list[Pair]) -> None:
        """Take them to this queue, or count why not."""
        if self._dry_run:
            self._moved(queue, len(pairs))
            return
        left = pairs
        try:
            if queue in self.tally.refusals:
                raise self.tally.refusals[queue]
            for batch, went in send_batches(self._way_to(queue), pairs, outgoing):
                if isinstance(went, InvalidMessage):
                    self.tally.stay(batch[0][1], Why.UNSENDABLE)
                else:
                    self._moved(queue, went)
                    self.tally.vanished += len(batch) - went
                left = left[len(batch) :]
        except BrokerRefused as refusal:
            self.tally.refusals[queue] = refusal
            for _, letter in left:
                self.tally.stay(letter, Why.REFUSED)

    def _moved(self, queue: str, number: int) -> None:
        self.tally.gone[queue] += number
        self._pace.spend(number)

    def _way_to(self, queue: str) -> Callable[[Sequence[tuple[Pair, Outgoing]]], int]:
        """How a batch gets to this queue; it says how many went: one that is gone by then does not."""
        letters = self._letters

        def move(batch: Sequence[tuple[Pair, Outgoing]]) -> int:
            return len(letters.move([(delivery, message) for (delivery, _), message in batch], queue))

        def publish_and_remove(batch: Sequence[tuple[Pair, Outgoing]]) -> int:
            self._publisher(queue).publish([message for _, message in batch], letters.serve)
            letters.remove([delivery for (delivery, _), _ in batch])
            return len(batch)

        return move if letters.moves else publish_and_remove

    def _publisher(self, queue: str) -> Publisher:
        """The connected publisher for this queue."""
        if queue not in self._publishers:
            connector = replace(self._connector, queue=queue, must_exist=True)
            self._publishers[queue] = self._open.enter_context(
                reached(connector, self._startup_timeout, self._tell, self._letters.serve)
            )
        return self._publishers[queue]


def outgoing(pair: Pair) -> Outgoing:
    """A dead letter as a message again: the body as it came, without the headers about its death (Z6)."""
    delivery, _ = pair
    return Outgoing(delivery.body, revived(delivery.headers), delivery.properties)
