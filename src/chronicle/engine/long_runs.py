"""How long syncers have been running, and what to do about those that run too long. Only decides.

Rule 1: nothing is measured per message. The pump looks at the workers' places a few times a second, so an age
        counts from the first look, and is at most that much too small.
Rule 2: with a time limit, a syncer past it is interrupted where that is possible. One that cannot be
        interrupted, or does not end although it was, is stuck: only the end of the process ends it.
Rule 3: without a limit it is named once after a minute. At three quarters of what the broker allows for a
        message it is named in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.frozen import frozen
from chronicle.engine.job import Job
from chronicle.telemetry.counters import Counters
from chronicle.transports.seam import Promises
from chronicle.workers.base import Workers
from chronicle.workers.slot import Slot

SLOW: Final = 60.0
NEARLY: Final = 0.75  # of the broker's patience
GRACE: Final = 5.0  # for a syncer to end after it was interrupted


@dataclass(slots=True)
class Run:
    """One syncer at work."""

    slot: Slot
    delivery: Delivery
    since: float
    seen_at: float
    named: bool = False
    warned: bool = False
    interrupted: bool = False

    @property
    def age(self) -> float:
        return self.seen_at - self.since


@frozen
class Stuck:
    """A syncer that only the end of the process ends."""

    slot: Slot
    delivery: Delivery
    limit: float


class LongRuns:
    """What is running, as the pump saw it last."""

    def __init__(
        self, job: Job, promises: Promises, workers: Workers, counters: Counters, name: Callable[[Run], None]
    ) -> None:
        """`name` is told of those that take long."""
        self._limit = job.limits.time_limit
        self._nearly = NEARLY * promises.patience
        self._workers = workers
        self._counters = counters
        self._name = name
        self._runs: dict[Slot, Run] = {}

    def tick(self, now: float) -> Stuck | None:
        """Name the syncers that take long, interrupt those that take too long; one that is stuck, if any."""
        self._look(now)
        self._counters.oldest = max((run.age for run in self._runs.values()), default=0.0)
        for run in self._runs.values():
            if self._is_slow(run) or self._is_nearly_lost(run):
                self._name(run)
        return self._end_overdue() if 0.0 < self._limit <= self._counters.oldest else None

    def _look(self, now: float) -> None:
        before, self._runs = self._runs, {}
        for slot in self._workers.slots:
            delivery = slot.delivery
            if delivery is None:
                continue
            run = before.get(slot)
            if run is None or run.delivery is not delivery:
                run = Run(slot, delivery, now, now)
            run.seen_at = now
            self._runs[slot] = run

    def _is_slow(self, run: Run) -> bool:
        if run.named or self._limit or run.age < SLOW:
            return False
        run.named = True
        return True

    def _is_nearly_lost(self, run: Run) -> bool:
        if run.warned or run.age < self._nearly:
            return False
        run.named = run.warned = True
        return True

    def _end_overdue(self) -> Stuck | None:
        overdue = [run for run in self._runs.values() if run.age >= self._limit]
        for run in overdue:
            if not run.interrupted and run.slot.interrupt is not None:
                run.interrupted = True
                run.slot.interrupt(run.delivery)
        stuck = [run for run in overdue if run.slot.interrupt is None or run.age >= self._limit + GRACE]
        # If one keeps the others from running, they look as if they were stuck themselves.
        one = max(stuck, key=lambda run: run.slot.blocks(), default=None)
        return None if one is None else Stuck(one.slot, one.delivery, self._limit)
