"""The deliveries this process holds, by how far they are, and the counters of a run."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Fate, Settlement
from chronicle.telemetry import left_sealed
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer


def is_old_news(settlement: Settlement) -> bool:
    """Whether the log has this verdict, and it was carried out as told."""
    return settlement.told and settlement.fate is Fate.DONE


class Holdings:
    """What was received and is not settled; only the pump writes here."""

    def __init__(self, counters: Counters, observer: Observer) -> None:
        self._counters = counters
        self._observer = observer
        self.held: set[Delivery] = set()  # received and not settled
        self.unfinished = 0  # given back to the broker because this process ends
        self.aside = 0  # on this connection, put aside by the transport: they go back when it closes
        self._told_sealed = False

    @property
    def running(self) -> int:
        """Handed to workers and not returned, on whatever connection: the counter that goes both ways."""
        return self._counters.inflight

    @running.setter
    def running(self, number: int) -> None:
        self._counters.inflight = number

    def __len__(self) -> int:
        return len(self.held)

    def received(self, batch: Sequence[Delivery]) -> None:
        self._counters.received += len(batch)
        self.held.update(batch)

    def settled(self, settled: Sequence[Settlement]) -> bool:
        """Count and report these; whether the broker accepted any."""
        if not settled:
            return False
        requeued = self._counters.requeued
        for settlement in settled:
            self.held.discard(settlement.delivery)
            self._counters.settled(settlement)
            self.aside += settlement.fate is Fate.ASIDE
        if self._counters.sealed and not self._told_sealed:
            self._tell_sealed(settled)
        # What waited for its time was told when it began to wait, unless it came to nothing.
        waited = self._counters.requeued > requeued
        self._observer.settled([one for one in settled if not is_old_news(one)] if waited else settled)
        return any(settlement.is_done for settlement in settled)

    def _tell_sealed(self, settled: Sequence[Settlement]) -> None:
        self._told_sealed = True
        text, facts = left_sealed.warning(next(settlement for settlement in settled if settlement.notes))
        self._observer.event(left_sealed.EVENT, logging.WARNING, text, **facts)

    @property
    def given_back(self) -> int:
        """How many the broker has again when this process ends, unhandled."""
        return self.unfinished + self.aside

    def forget(self) -> None:
        """The connection is gone: everything that came on it is the broker's again."""
        self.held.clear()
        self.aside = 0

    def given_up(self, left: Sequence[Settlement]) -> None:
        """These go back to the broker unhandled because this process ends."""
        self.unfinished += len(left)
        self.held.difference_update(settlement.delivery for settlement in left)
