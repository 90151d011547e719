"""A broker that keeps a log, for tests of lanes: it delivers by number, takes back, and forgets nothing.

A message's body is `LANE:NUMBER`; the lane `-` is none. Dead letters become final only when the test says so,
as they would with a delivery report.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from chronicle.core.delivery import Delivery, Lease
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.states import EMBEDDED, Embedded
from chronicle.errors import ConnectionLost
from chronicle.transports.seam import Closing, Promises

LOG: Final = Promises("log", requeues=False, parks=4)


def lane_of(delivery: Delivery) -> str | None:
    lane = delivery.body.partition(b":")[0].decode()
    return None if lane == "-" else lane


def number_of(delivery: Delivery) -> int:
    return int(delivery.body.partition(b":")[2])


class LogBroker:
    """One log, as the engine sees it."""

    away = 0.0
    unconfirmed = 0
    place = "nowhere"

    def __init__(self, *lanes: str, promises: Promises = LOG) -> None:
        self.promises = promises
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.lanes: list[str] = []  # by number
        self.waiting: list[int] = []  # not delivered, in order
        self.held: dict[int, tuple[int, Lease]] = {}  # by handle
        self.settled: dict[int, list[Action]] = {}  # what became of each message
        self.left: list[int] = []
        self.unheard: list[Settlement] = []
        self.rooms: list[int] = []  # what every turn had room for
        self.timeouts: list[float] = []
        self.loses = False
        self.stopped = False
        self._handle = 0
        self.publish(*lanes)

    @property
    def depth(self) -> int | None:
        return len(self.waiting)

    def publish(self, *lanes: str) -> None:
        for lane in lanes:
            self.waiting.append(len(self.lanes))
            self.lanes.append(lane)

    def revoke(self, lane: str) -> None:
        """Take back everything of this lane that is not settled; it is delivered again."""
        for handle, (number, lease) in list(self.held.items()):
            if self.lanes[number] == lane:
                lease.end()
                self._put_back(handle)

    def confirm(self) -> None:
        """The dead letters have arrived; the next `settle` says so."""
        for settlement in self.unheard:
            self._finish(settlement)

    def _put_back(self, handle: int) -> None:
        number, _ = self.held.pop(handle)
        insort(self.waiting, number)

    def _finish(self, settlement: Settlement) -> None:
        found = self.held.pop(settlement.delivery.handle, None)
        settlement.fate = Fate.STALE if found is None else Fate.DONE
        if found is not None:
            self.settled.setdefault(found[0], []).append(settlement.verdict.action)

    # --- the seam -----------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        self.stopped = False
        return len(self.waiting)

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        if self.loses:
            raise ConnectionLost("cut by the test")
        self.rooms.append(room)
        self.timeouts.append(timeout)
        batch: list[Delivery] = []
        while room > len(batch) and self.waiting and not self.stopped:
            number, lease = self.waiting.pop(0), Lease()
            self._handle += 1
            self.held[self._handle] = (number, lease)
            body = f"{self.lanes[number]}:{number}".encode()
            batch.append(Delivery(body, queue="q", transport="log", handle=self._handle, lease=lease))
        return batch

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        if self.loses:
            raise ConnectionLost("cut by the test")
        final = [one for one in self.unheard if one.fate is not Fate.OPEN]
        self.unheard = [one for one in self.unheard if one.fate is Fate.OPEN]
        for settlement in work:
            if settlement.verdict.action is Action.DEAD_LETTER and settlement.delivery.handle in self.held:
                self.unheard.append(settlement)
                continue
            final.append(settlement)
            if settlement.verdict.action is Action.LEAVE:
                settlement.fate = Fate.DONE if settlement.delivery.handle in self.held else Fate.STALE
                self.left.append(number_of(settlement.delivery))
            elif settlement.verdict.action is Action.REQUEUE:
                assert self.promises.requeues, "a log cannot take a message back"
                self._requeue(settlement)
            else:
                is_retry = settlement.verdict.action is Action.RETRY
                assert not (is_retry and settlement.delivery.handle in self.held), "it cannot count tries"
                self._finish(settlement)
        return final

    def _requeue(self, settlement: Settlement) -> None:
        handle = settlement.delivery.handle
        settlement.fate = Fate.DONE if handle in self.held else Fate.STALE
        if handle in self.held:
            self._put_back(handle)

    def is_empty(self) -> bool | None:
        return not self.waiting

    def stop(self, patience: float) -> None:
        self.stopped = True

    def close(self, why: Closing = Closing.SETTLED) -> None:
        if why is Closing.LOST and self.promises.late_results:
            return
        for handle in list(self.held):
            self._put_back(handle)
        self.unheard.clear()

    def wake(self) -> None: ...

    def fileno(self) -> int | None:
        return None
