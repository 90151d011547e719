"""What was received and may not begin yet, and what has failed and waits for its verdict.

Rule 1: without a limit everything goes straight to the workers. With a rate only as many as may begin now and
        find a worker free; on the brake one now and then. The rest waits here, within the window.
Rule 2: what fails in a row of failures waits here for what comes next (brake.py). If one succeeds, or nothing
        comes for a moment, each gets the verdict that the policy has for it. If the row becomes an outage,
        they have not been tried: the broker learns nothing of it, and they are tried again from here.
Rule 3: when the outage is over, those that failed in it begin one at a time: after each success, or when
        there is nothing else to try. One that fails again has failed by itself, and gets its verdict.
Rule 4: what waits here because it failed takes nobody's place: when a worker has nothing else to do, others
        are taken in, as many as make an outage at a time. Otherwise a small window would never show whether
        they fail as well, and nobody would find the first that does not.
Rule 5: nothing sleeps here, and only the pump calls. What would wait for longer than the broker allows goes
        back as it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Interrupted, Synced
from chronicle.core.policy import KEPT_TOO_LONG
from chronicle.core.rate_limit import RateLimit
from chronicle.core.settlement import Settlement, interrupted
from chronicle.engine.brake import Brake, kind_of
from chronicle.engine.delays import Delays
from chronicle.engine.holdings import Holdings
from chronicle.engine.job import Job
from chronicle.engine.run_events import RunEvents
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.redaction import one_line
from chronicle.transports.seam import Promises
from chronicle.workers.pump_loan import PULSE
from chronicle.workers.turns import TurnTaking

LULL: Final = 0.25  # seconds in which nothing came: there may be nothing more to come
LONG_LULL: Final = 2.0  # when several have failed alike, or a syncer is running whose result may tell
MOMENT: Final = 0.02  # the pump is never on time to the microsecond: a rate makes up for so much
MOST_EXTRA: Final = 500  # messages that may be held beyond the prefetch, whatever fails
KEPT: Final = 0.75  # of the broker's patience


class Intake:
    """Decides which deliveries begin now, and keeps the others."""

    def __init__(
        self, job: Job, promises: Promises, workers: TurnTaking, holdings: Holdings, delays: Delays,
        counters: Counters, tell: RunEvents, now: float,
    ) -> None:  # fmt: skip
        limits = job.limits
        self._job = job
        self._workers = workers
        self._holdings = holdings
        self._delays = delays
        self._counters = counters
        self._tell = tell
        self._keeps_for = KEPT * promises.patience
        self._pace = None if limits.rate == float("inf") else RateLimit(limits.rate, now, MOMENT)
        # A message that is gone when it arrives cannot be tried again, and nobody keeps those that come.
        self._most = limits.brake if promises.settles else 0
        self._brake = Brake(self._most)
        self._on_since = 0.0
        self._probe: Delivery | None = None  # the one that is tried on the brake
        self._fresh: deque[Delivery] = deque()
        self._tried: deque[Delivery] = deque()  # failed on the brake, or before it: to be tried again
        self._came: dict[Delivery, float] = {}  # all that wait here for their turn
        self.doubtful: list[Settlement] = []  # failed, and wait for their verdict
        self._suspects: set[int] = set()  # messages that failed in the outage, or the last one
        self._credit = 0  # how many of these may begin
        self.watches = False  # whether a success would change anything
        self._turned = now
        self._lull = 0.0  # seconds in which nothing came
        self._shut = False

    # --- what comes in ------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more deliveries may be held: the backpressure (D-7)."""
        if self._shut:
            return 0
        room = self._job.prefetch - len(self._holdings)
        failed = len(self.doubtful) + len(self._tried)
        if failed and self._holdings.running < self._job.concurrency:
            room += min(MOST_EXTRA, ceil(failed / self._most) * self._most)
        return max(0, min(room, self._job.bounds.remaining(self._counters.received)))

    @property
    def braked(self) -> bool:
        return self._brake.engaged

    @property
    def given_up(self) -> str:
        """Why a run that ends when there is nothing to do ends now, if it does: otherwise it never would."""
        bounds = self._job.bounds
        is_endless = (bounds.until_empty or bounds.idle_timeout is not None) and bounds.max_time is None
        return "given up for now" if is_endless and self._brake.is_hopeless else ""

    def received(self, batch: Sequence[Delivery], now: float) -> None:
        """These came, perhaps none: they begin or wait, as those that wait already."""
        # A turn that took longer than it may says nothing: this process was kept waiting.
        self._lull += min(now - self._turned, PULSE)
        self._turned = now
        if batch:
            self._holdings.received(batch)
            self._lull = 0.0
            if self._pace is None and not self._brake.engaged:
                self._submit(batch)
                return
            for delivery in batch:
                has_failed = self._brake.engaged and identity(delivery) in self._suspects
                self._wait(self._tried if has_failed else self._fresh, (delivery,), now)
        if self._fresh or self._tried:
            self._begin(now)

    def _begin(self, now: float) -> None:
        running = self._holdings.running
        if self._brake.engaged:
            if now >= self._brake.due and self._may_probe():
                # One that was not tried tells more: those that failed may have failed by themselves.
                self._probe = (self._fresh or self._tried).popleft()
                self._submit((self._probe,))
            return
        if not running and not self._fresh and self._lull >= LULL:
            self._credit = max(1, self._credit)
        number = len(self._fresh) + min(self._credit, len(self._tried))
        if self._pace is not None:
            number = self._pace.room(now, max(0, min(number, self._job.concurrency - running)))
            self._pace.spend(number)
        if number:
            self._submit([self._next() for _ in range(number)])

    def _may_probe(self) -> bool:
        """One at a time; what had begun before may take as long as it likes."""
        return self._probe not in self._holdings.held and self._holdings.running < self._job.concurrency

    def _submit(self, batch: Sequence[Delivery]) -> None:
        self._holdings.running += len(batch)
        self._workers.submit(batch)

    def _wait(self, queue: deque[Delivery], batch: Sequence[Delivery], now: float) -> None:
        queue.extend(batch)
        for delivery in batch:
            self._came.setdefault(delivery, now)

    def _next(self) -> Delivery:
        if self._fresh:
            delivery = self._fresh.popleft()
        else:
            delivery = self._tried.popleft()
            self._credit -= 1
        del self._came[delivery]
        return delivery

    def wait(self, now: float) -> float:
        """Seconds until something may begin."""
        if not self._fresh and not self._tried:
            return float("inf")
        if self._brake.engaged:
            return max(0.0, self._brake.due - now) if self._may_probe() else float("inf")
        if not self._fresh and not self._credit:
            return float("inf")
        if self._pace is None:
            return 0.0
        return self._pace.wait() if self._holdings.running < self._job.concurrency else float("inf")

    # --- what comes out -----------------------------------------------------------------------------

    def finished(self, settlement: Settlement, now: float) -> None:
        """Look at a result, and pass it on, unless it is to wait for what comes next.

        A success need not be shown unless it `watches`.
        """
        if isinstance(settlement.outcome, Synced):
            self._succeeded(now)
        elif self._keeps(settlement, now):
            return
        self._came.pop(settlement.delivery, None)
        self._delays.put(settlement, now)

    def _keeps(self, settlement: Settlement, now: float) -> bool:
        kind = kind_of(settlement) if self._most else None
        if kind is None:
            return False
        delivery = settlement.delivery
        message = identity(delivery)
        if not self._brake.engaged and message in self._suspects:
            return False
        if delivery.lease is not None:
            delivery.lease.rest()  # nobody works on it
        if self._brake.engaged:
            self._wait(self._tried, (delivery,), now)
            self._suspects.add(message)
            if delivery is self._probe:  # others had begun before
                self._probe = None
                self._tell.probe_failed(settlement.verdict.reason, self._brake.probe_failed(now))
            return True
        if not self._brake.continues(kind):
            self.release(now)
        self.doubtful.append(settlement)
        self._lull = 0.0
        self.watches = True
        if self._brake.failed(message, kind, now):
            self._engage(settlement.verdict.reason, now)
        return True

    def _engage(self, reason: str, now: float) -> None:
        self._on_since = now
        self._suspects = {identity(settlement.delivery) for settlement in self.doubtful}
        self._credit = 0
        unbegun = self._workers.discard()
        self._holdings.running -= len(unbegun)
        self._wait(self._fresh, unbegun, now)
        self._wait(self._tried, [settlement.delivery for settlement in self.doubtful], now)
        self.doubtful.clear()
        self._counters.brake = f"{self._brake.row} messages in a row failed: {one_line(reason, 120)}"
        self._tell.braked(self._counters.brake, self._brake.row, reason)

    def _succeeded(self, now: float) -> None:
        if self._brake.succeeded():
            self._counters.brake = ""
            self._tell.resumed(now - self._on_since, self._brake.probes)
        self.watches = bool(self._tried)
        self._credit = min(self._credit + 1, len(self._tried))
        self.release(now)

    def release(self, now: float) -> None:
        """Those that failed get the verdict that the policy has for them."""
        for settlement in self.doubtful:
            self._delays.put(settlement, now)
        self.doubtful.clear()

    def look(self, now: float, *, ending: bool) -> None:
        """After every turn: whether what failed has waited long enough for what comes next."""
        running = self._holdings.running
        if running > self._job.concurrency:
            return  # more is about to begin
        lull = LONG_LULL if running or self._brake.row > 1 else LULL
        if ending and not running:
            lull = 0.0
        if self._lull >= lull:
            self.release(now)

    def tick(self, now: float) -> None:
        """A few times a second: count what waits here, and let go of what must not wait any longer."""
        counters, holdings = self._counters, self._holdings
        counters.held = len(self._fresh) + len(self._tried) + len(self.doubtful)
        counters.unsettled = max(0, len(holdings) - holdings.running - counters.held)
        if not self._came and not self.doubtful:
            return
        for settlement in [one for one in self.doubtful if _is_over(one.delivery)]:
            self.doubtful.remove(settlement)
            self._delays.put(settlement, now)
        for queue in (self._fresh, self._tried):
            # A worker hands back what was taken back; it does not call the syncer.
            if over := [delivery for delivery in queue if _is_over(delivery)]:
                self._remove(queue, over)
                self._submit(over)
            late = [delivery for delivery in queue if now - self._came[delivery] >= self._keeps_for]
            self._remove(queue, late)
            self._delays.extend(Settlement(delivery, Interrupted(), KEPT_TOO_LONG) for delivery in late)

    def _remove(self, queue: deque[Delivery], some: Sequence[Delivery]) -> None:
        for delivery in some:
            queue.remove(delivery)
            del self._came[delivery]

    # --- ending -------------------------------------------------------------------------------------

    def discard(self) -> list[Settlement]:
        """Let go of all that has not begun, and of what was to be tried again: it goes back as it came."""
        return [interrupted(delivery) for delivery in self._taken_out()]

    def _taken_out(self) -> list[Delivery]:
        unbegun = self._workers.discard()
        self._holdings.running -= len(unbegun)
        taken = [*unbegun, *self._fresh, *self._tried]
        self._fresh.clear()
        self._tried.clear()
        self._came.clear()
        return taken

    def shut(self, now: float) -> list[Settlement]:
        """The run cannot go on: nothing begins any more, and what has failed gets its verdict."""
        self._shut = True
        self.release(now)
        return self.discard()

    def forget(self) -> list[Settlement]:
        """The connection is gone, and everything with it: what had failed, and waited for its verdict."""
        self._taken_out()
        lost, self.doubtful = self.doubtful, []
        return lost


def identity(delivery: Delivery) -> int:
    """What tells one message from another, also when it comes again."""
    return hash((delivery.queue, delivery.body))


def _is_over(delivery: Delivery) -> bool:
    return delivery.lease is not None and delivery.lease.over
