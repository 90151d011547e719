"""Lanes around a transport: messages of one lane one after the other, through their retries (D-23).

A transport that hands out one unsettled delivery per lane and keeps the others back. It works around any
other, and holds the promise within one process.

Rule 1: a message that is to be tried again keeps its lane and waits here, in memory; the broker still holds
        it unsettled. To the engine it is settled, and comes again as a new delivery.
Rule 2: what waits here is bounded: with what the engine holds it is never more than the prefetch window and
        what the transport parks beyond it.
Rule 3: what was taken back (its lease is over) is never offered.
Rule 4: the engine settles and then receives in one turn, so what a verdict sets free needs no ringing.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from time import monotonic, time
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.order import LaneOf
from chronicle.core.outcome import Action
from chronicle.core.policy import given_back, held
from chronicle.core.settlement import Fate, Settlement, interrupted
from chronicle.errors import ChronicleError
from chronicle.transports.seam import Closing, Promises, Transport

PARKED_BYTES: Final = 32 * 1024 * 1024  # what may wait here beyond the prefetch window
PATROL: Final = 0.25  # seconds between two looks for what was taken back
UNKNOWN: Final = object()


def no_lane(_delivery: Delivery) -> None:
    """The lane of a message that waits for nobody."""


class Lanes:
    """One queue of a broker, whose messages come lane by lane."""

    def __init__(self, inner: Transport, lane_of: LaneOf, *, clock: Callable[[], float] = monotonic) -> None:
        self._inner = inner
        self._lane_of = lane_of
        self._clock = clock
        self._keeps = inner.promises.settles  # otherwise there is no next try, and nothing goes back
        # A broker that does not count tries would learn nothing of a failed one, and might put it elsewhere.
        self._goes_back = inner.promises.requeues and inner.promises.counts
        self.promises = _promises(inner.promises)
        self.machine = inner.machine
        self.notices = inner.notices
        # Every lane that is taken, with those who wait for it; None where nobody ever did.
        self._lanes: dict[Hashable, deque[Delivery] | None] = {}
        self._known: dict[Delivery, Hashable | None] = {}  # all that came and is not final, with its lane
        self._ready: deque[Delivery] = deque()  # may be offered
        self._later: list[tuple[float, int, Delivery]] = []  # tried again when it is time
        self._number = count()
        self._kept = self._kept_bytes = 0  # of what is here and not with the engine
        self._final: list[Settlement] = []  # to be told with the next answer
        self._own: set[Settlement] = set()  # verdicts that the engine knows nothing of
        self._patrol_at = 0.0
        self._open = self._stopped = False

    @property
    def place(self) -> str:
        return self._inner.place

    @property
    def away(self) -> float:
        return self._inner.away

    @property
    def unconfirmed(self) -> int:
        return self._inner.unconfirmed

    @property
    def depth(self) -> int | None:
        """What waits at the broker, and what is kept back here."""
        depth = self._inner.depth
        return None if depth is None else depth + self._kept

    def open(self, stopping: Callable[[], bool]) -> int | None:
        queued = self._inner.open(stopping)
        self._open, self._stopped = True, False
        return queued

    # --- receiving ----------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        """What is due of that which waits here, then what is new and finds its lane free."""
        if self._stopped and self._keeps:
            return self._inner.receive(0, timeout)
        offered: list[Delivery] = []
        if self._kept:
            now = self._clock()
            self._look_for_revoked(now)
            self._offer(offered, room, now)
            if offered:
                timeout = 0.0
            elif self._later:
                timeout = min(timeout, max(0.0, self._later[0][0] - now))
        try:
            batch = self._inner.receive(self._wanted(room - len(offered)), timeout)
        except ChronicleError:
            self._take_back(offered)  # where a loss takes nothing away, they are offered again
            raise
        lane_of, lanes, known = self._lane_of, self._lanes, self._known
        kept_back = False
        for delivery in batch:
            known[delivery] = lane = lane_of(delivery)
            if lane is None:
                offered.append(delivery)
            elif lane not in lanes:
                lanes[lane] = None
                offered.append(delivery)
            else:
                self._keep_back(delivery, lane)
                kept_back = True
        if kept_back:
            self._inner.wake()  # there is still room, and perhaps more to come
        return offered

    def _wanted(self, room: int) -> int:
        """How many new ones there is room for (Rule 2)."""
        if not self._kept:
            return room
        parks = self.promises.parks if self._kept_bytes <= PARKED_BYTES else 0
        return max(0, min(room, room + parks - self._kept))

    def _keep_back(self, delivery: Delivery, lane: Hashable) -> None:
        waiting = self._lanes[lane]
        if waiting is None:
            waiting = self._lanes[lane] = deque()
        waiting.append(delivery)
        self._keep(delivery)

    def _offer(self, offered: list[Delivery], room: int, now: float) -> None:
        ready, later = self._ready, self._later
        while later and later[0][0] <= now:
            ready.append(heapq.heappop(later)[2])
        while ready and len(offered) < room:
            delivery = ready.popleft()
            self._let_go(delivery)
            if _is_over(delivery):
                self._finished(delivery)
            else:
                offered.append(delivery)

    def _take_back(self, offered: list[Delivery]) -> None:
        """The engine never saw these: a claim that outlives its connection must not be lost here."""
        self._ready.extendleft(reversed(offered))
        for delivery in offered:
            self._keep(delivery)

    def _keep(self, delivery: Delivery) -> None:
        self._kept += 1
        self._kept_bytes += len(delivery.body)

    def _let_go(self, delivery: Delivery) -> None:
        self._kept -= 1
        self._kept_bytes -= len(delivery.body)

    def _finished(self, delivery: Delivery) -> None:
        """It has left its lane: the next one may go."""
        lane = self._known.pop(delivery, None)
        if lane is None:
            return
        waiting = self._lanes[lane]
        while waiting:
            following = waiting.popleft()
            if not _is_over(following):
                self._ready.append(following)
                return
            self._let_go(following)
            del self._known[following]
        del self._lanes[lane]

    def _look_for_revoked(self, now: float) -> None:
        """Forget what waits here and was taken back: somebody may want its lane before its time has come."""
        if now < self._patrol_at:
            return
        self._patrol_at = now + PATROL
        if not any(map(_is_over, self._waiting())):
            return
        for waiting in filter(None, self._lanes.values()):
            for delivery in [one for one in waiting if _is_over(one)]:
                waiting.remove(delivery)
                self._let_go(delivery)
                del self._known[delivery]
        over = [entry for entry in self._later if _is_over(entry[2])]
        self._later = [entry for entry in self._later if not _is_over(entry[2])]
        heapq.heapify(self._later)
        for _, _, delivery in over:
            self._let_go(delivery)
            self._finished(delivery)

    def _waiting(self) -> Iterator[Delivery]:
        """All that waits here, but for what may be offered at once."""
        lanes = (waiting for waiting in self._lanes.values() if waiting)
        return chain(chain.from_iterable(lanes), (delivery for _, _, delivery in self._later))

    # --- settling -----------------------------------------------------------------------------------

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Keep what is to be tried again; pass everything else on, and its lane when it is final."""
        for settlement in work:
            action = settlement.verdict.action
            if action is Action.REQUEUE or action is Action.RETRY:
                work = self._without_tries(work)
                break
        final = self._inner.settle(work)
        known, lanes = self._known, self._lanes
        for settlement in final:
            lane = known.get(settlement.delivery)
            if lane is None:
                known.pop(settlement.delivery, None)
            elif lanes[lane]:
                self._finished(settlement.delivery)
            else:
                del known[settlement.delivery], lanes[lane]
        if self._own:
            final = [settlement for settlement in final if not self._is_own(settlement)]
        if self._final:
            final = [*self._final, *final]
            self._final = []
        return final

    def _is_own(self, settlement: Settlement) -> bool:
        own = settlement in self._own
        self._own.discard(settlement)
        return own

    def _without_tries(self, work: Sequence[Settlement]) -> list[Settlement]:
        """What the broker has to be told."""
        passed: list[Settlement] = []
        for settlement in work:
            if settlement.verdict.action not in (Action.REQUEUE, Action.RETRY):
                passed.append(settlement)
            elif (told := self._another_try(settlement)) is not None:
                passed.append(told)
        return passed

    def _another_try(self, settlement: Settlement) -> Settlement | None:
        """See to it that a message is tried again; what the broker has to be told about it, if anything."""
        delivery = settlement.delivery
        lane = self._known.get(delivery, UNKNOWN)
        is_here = self._keeps and lane is not UNKNOWN and not _is_over(delivery)
        if is_here and not self._stopped:
            self._try_again(settlement, lane)
            return None
        if is_here and self._goes_back:
            settlement.verdict = given_back(settlement.verdict)
            return settlement
        if not is_here and self.promises.requeues:
            return settlement
        # It is left where it is, and comes again to whoever reads that place next.
        settlement.fate = Fate.DONE if is_here else Fate.STALE
        self._final.append(settlement)
        if lane is UNKNOWN:
            return None
        return self._of_our_own(interrupted(delivery))

    def _try_again(self, settlement: Settlement, lane: Hashable) -> None:
        delivery = settlement.delivery
        settlement.verdict = held(settlement.verdict, self.promises.holds)
        settlement.fate = Fate.DONE
        self._final.append(settlement)
        if delivery.lease is not None:
            delivery.lease.rest()
        another = delivery.again(round(time() * 1000))
        del self._known[delivery]
        self._known[another] = lane
        self._keep(another)
        if delay := settlement.verdict.delay:
            heapq.heappush(self._later, (self._clock() + delay, next(self._number), another))
        else:
            self._ready.append(another)

    def _of_our_own(self, settlement: Settlement) -> Settlement:
        self._own.add(settlement)
        return settlement

    def is_empty(self) -> bool | None:
        return False if self._kept else self._inner.is_empty()

    def wake(self) -> None:
        self._inner.wake()

    def fileno(self) -> int | None:
        return self._inner.fileno()

    # --- ending -------------------------------------------------------------------------------------

    def stop(self, patience: float) -> None:
        """Offer nothing more: what is kept goes back. Where nothing goes back it is still handed out."""
        self._stopped = True
        self._inner.stop(patience)
        if self._open and self._keeps:
            self._give_back()

    def _give_back(self) -> None:
        """What came and was not tried goes back as it came; the others are to be tried again."""
        left = [delivery for delivery in (*self._ready, *self._waiting()) if not _is_over(delivery)]
        self._clear()
        self._known = dict.fromkeys(self._known)  # nobody waits for a lane any more
        back = [self._of_our_own(interrupted(delivery)) for delivery in left]
        if self._goes_back:
            for settlement in back:
                if settlement.delivery.failed:
                    settlement.verdict = given_back(settlement.verdict)
        self._final = list(self.settle(back))

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self._inner.close(why)
        self._open = False
        if why is not Closing.LOST or (self._keeps and not self.promises.late_results):
            self._forget()

    def _forget(self) -> None:
        """Everything is the broker's again."""
        self._clear()
        self._known.clear()
        self._final.clear()
        self._own.clear()

    def _clear(self) -> None:
        self._lanes.clear()
        self._ready.clear()
        self._later.clear()
        self._kept = self._kept_bytes = 0


def _promises(inner: Promises) -> Promises:
    """What is waited for here needs nothing of the broker, as long as that keeps it."""
    return replace(inner, retries=True, delays=True, counts=True) if inner.settles else inner


def _is_over(delivery: Delivery) -> bool:
    lease = delivery.lease
    return lease is not None and lease.over
