"""Writing dead letters to a file, and dropping them.

Rule: what is dropped is removed only once it is on disk, batch by batch; without a file it is simply gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import Any, Protocol

from chronicle.core.body import MAX_BODY
from chronicle.core.deadletters.conditions import Condition, matches
from chronicle.core.deadletters.letter import Letter, letter_of
from chronicle.core.deadletters.moves import Why
from chronicle.core.delivery import Delivery
from chronicle.core.record import to_record
from chronicle.deadletters.redrive import Tally
from chronicle.engine.reconnect import TURN
from chronicle.transports.batches import BATCH
from chronicle.transports.seam import Reader


class RecordWriter(Protocol):
    """Where records go; every method may raise OSError."""

    def write(self, records: Sequence[dict[str, Any]]) -> None: ...

    def sync(self) -> None:
        """Return when what was written is on disk."""

    def close(self) -> None:
        """Nothing more will be written."""


class Export:
    """One pass over the dead letters of a queue, into a file; with `drop` they are removed."""

    def __init__(
        self,
        letters: Reader,
        queue: str,
        sink: RecordWriter | None,
        *,
        conditions: tuple[Condition, ...] = (),
        limit: int | None = None,
        drop: bool = False,
        max_body: int = MAX_BODY,
        readable: int | None = None,
        now: Callable[[], float] = time,
    ) -> None:
        """Bodies up to `readable` bytes, or `max_body`, are in their records as text and JSON, too."""
        self.tally = Tally()
        self.in_doubt = 0  # were being removed when the connection was lost
        self._letters = letters
        self._queue = queue
        self._sink = sink
        self._conditions = conditions
        self._limit = limit
        self._drop = drop
        self._max_body = max_body
        self._readable = max_body if readable is None else readable
        self._now = now

    def stop(self, reason: str) -> None:
        """End after this batch. Safe in a signal handler."""
        self.tally.stopped = reason

    def run(self, advance: Callable[[int], None]) -> Tally:
        """Work through all that were there at the start; raises BrokerError and OSError."""
        tally = self.tally
        tally.present = self._letters.present
        while not tally.stopped:
            room = BATCH if self._limit is None else min(BATCH, self._limit - tally.moved)
            batch = self._letters.read(room, TURN) if room else None
            if batch is None:
                tally.present = self._letters.present
                break
            self._work_on(batch)
            advance(len(batch))
        return tally

    def _work_on(self, batch: Sequence[Delivery]) -> None:
        now = int(self._now() * 1000)
        pairs = [(delivery, letter_of(delivery, self._queue, self._max_body)) for delivery in batch]
        meant = [pair for pair in pairs if matches(pair[1], self._conditions, now)]
        if self._sink is not None and meant:
            records = [to_record(delivery, story(letter), self._readable) for delivery, letter in meant]
            self._sink.write(records)
        if self._drop and meant:
            if self._sink is not None:
                self._sink.sync()
            self.in_doubt = len(meant)
            self._letters.remove([delivery for delivery, _ in meant])
            self.in_doubt = 0
        self.tally.seen += len(batch)
        self.tally.gone[self._queue] += len(meant)
        for _, letter in pairs:
            if not matches(letter, self._conditions, now):
                self.tally.stay(letter, Why.OTHER)


def story(letter: Letter) -> dict[str, Any]:
    """What chronicle read from the headers, for people who read the file."""
    death = letter.death
    return {"came_from": letter.home, "reason": death.reason, "attempts": death.attempts or None}
