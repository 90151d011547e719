"""A queue of dead letters in memory, with its reader and its publisher, for tests of what becomes of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from chronicle.core.deadletters.death import REASON
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.notice import Notice
from chronicle.errors import ChronicleError, ConnectionLost, InvalidMessage
from chronicle.transports.seam import Closing, Outgoing, nothing

NAME: Final = "q.dlq"


class Letters:
    """A queue of dead letters with its reader and its publisher in one."""

    transport = "stub"
    place = "nowhere"

    def __init__(self, count: int, *, moves: bool = False) -> None:
        self.moves = moves
        self.notices: deque[Notice] = deque()
        self.queue = [letter(b"%d" % number) for number in range(count)]
        self.present = 0
        self.served = 0
        self.stops = 0
        self.trouble: ChronicleError | None = None  # of whoever publishes or moves
        self.elsewhere: dict[str, list[Outgoing]] = {}  # what was moved to other queues
        self.lost = False
        self.cut_after: int | None = None  # moves, and then the connection is gone
        self.unsendable: bytes | None = None
        self.stolen: Sequence[bytes] = ()  # somebody else takes these just before they would be moved
        self._next = 0

    def open(self, stopping: Callable[[], bool]) -> None:
        self.present, self._next = (0 if stopping() else len(self.queue)), 0

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        del timeout
        batch = self.queue[self._next : min(self._next + room, self.present)]
        self._next += len(batch)
        return batch or None

    def remove(self, batch: Sequence[Delivery]) -> None:
        if self.lost:
            raise ConnectionLost("cut")
        self.queue = [one for one in self.queue if one not in batch]
        self._next -= len(batch)
        self.present -= len(batch)

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        assert self.moves
        if self.cut_after is not None:
            self.cut_after -= 1
            self.trouble = ConnectionLost("cut") if self.cut_after < 0 else None
        self.remove([one for one in self.queue if one.body in self.stolen])
        here = [pair for pair in batch if pair[0] in self.queue]
        self._accept([message for _, message in here])
        moved = [delivery for delivery, _ in here]
        self.remove(moved)
        for _, message in here:
            if queue == NAME:
                self.queue.append(letter(message.body, str(message.headers[REASON])))
            else:
                self.elsewhere.setdefault(queue, []).append(message)
        return moved

    def serve(self, timeout: float = 0.0) -> None:
        del timeout
        self.served += 1

    def close(self, why: Closing = Closing.SETTLED) -> None: ...

    def stop(self, patience: float) -> None:
        del patience
        self.stops += 1

    def wake(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        assert not self.moves
        meanwhile()
        self._accept(batch)
        self.queue += [letter(one.body, str(one.headers[REASON])) for one in batch]

    def _accept(self, batch: Sequence[Outgoing]) -> None:
        if self.trouble is not None:
            raise self.trouble
        if any(one.body == self.unsendable for one in batch):
            raise InvalidMessage("a header")

    @property
    def reasons(self) -> list[tuple[bytes, str]]:
        return [(one.body, one.headers[REASON]) for one in self.queue]


def letter(body: bytes, reason: str = "old") -> Delivery:
    """A dead letter of this queue."""
    return Delivery(body, queue=NAME, transport="stub", envelope=Envelope({REASON: reason}))
