"""What was delivered from one partition in one assignment, and what of it is settled.

Rule 1: everything below the watermark is settled, so it may be committed (K2): it is the oldest open offset,
        or the one after the newest seen. It never goes back.
Rule 2: only records that came count. Offsets are sparse, since transaction markers and compaction leave gaps:
        one that never came is settled with its neighbours.
Rule 3: what was settled beyond the watermark goes into the metadata of the commit, and the ledger of the next
        assignment begins with it. Where the metadata has no room, records are repeated, never skipped.
Rule 4: a partition is read forwards, so what comes a second time is open or settled already. If the first one
        lies before the start, the log was made anew, and what was committed says nothing about it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from chronicle.transports.kafka import metadata as text
from chronicle.transports.kafka.metadata import ROOM, Run


class Ledger:
    """Open and settled offsets of one partition."""

    __slots__ = ("_ahead", "_known", "_next", "_open", "_order", "_start")

    def __init__(self, start: int | None, metadata: str = "") -> None:
        """`start` is the committed offset, or where reading begins; None if that is not known yet."""
        self._start = start
        self._known = start is not None  # where we are; also known once something was delivered
        self._next = start or 0
        self._open: set[int] = set()
        self._order: deque[int] = deque()  # delivered, ascending; those below the oldest open one leave
        self._ahead = deque(text.read(start, metadata) if start is not None else ())  # settled, not yet seen

    def deliver(self, offset: int) -> bool:
        """A record came: whether it is to be handled. Not if it was settled before, or is open already."""
        if offset < self._next and not self._is_anew():
            return False
        self._next = offset + 1
        self._order.append(offset)
        if self._ahead and self._was_settled(offset):
            return False
        self._open.add(offset)
        return True

    def settle(self, offset: int) -> None:
        """Nothing more will be done about this record. One that is not open is ignored."""
        self._open.discard(offset)

    def reached(self, offset: int) -> None:
        """The partition ends here: everything below has come, and what did not will not."""
        self._known = True
        if offset > self._next:
            self._next = offset
            self._pass(offset)

    def unite(self, start: int, metadata: str) -> None:
        """Somebody else committed this: what is settled there is settled."""
        settled = text.read(start, metadata)
        firsts = [begin for begin, _ in settled]

        def is_open(offset: int) -> bool:
            run = bisect_right(firsts, offset) - 1
            return offset >= start and (run < 0 or offset >= settled[run][1])

        self._open = set(filter(is_open, self._open))
        self._ahead = deque(text.unite(self._ahead, settled))
        self.reached(start)
        self._pass(self._next)

    @property
    def watermark(self) -> int | None:
        """What may be committed; None before anything is known."""
        order, still_open = self._order, self._open
        while order:
            if order[0] in still_open:
                return order[0]
            order.popleft()
        return self._next if self._known or self._next else None

    @property
    def next(self) -> int:
        """The offset after the newest that was seen; 0 before anything is known."""
        return self._next

    @property
    def open(self) -> int:
        """How many are delivered and not settled."""
        return len(self._open)

    @property
    def oldest_open(self) -> int | None:
        """The offset that holds the watermark back."""
        return self.watermark if self._open else None

    @property
    def span(self) -> int:
        """How far the newest seen is beyond the watermark."""
        watermark = self.watermark
        return 0 if watermark is None else self._next - watermark

    def metadata(self, room: int = ROOM) -> str:
        """What is settled beyond the watermark, as text; empty if nothing is."""
        watermark = self.watermark
        self._pass(self._next)
        return "" if watermark is None else text.write(watermark, self._settled_runs(watermark), room)

    def _settled_runs(self, watermark: int) -> Iterator[Run]:
        """Those beyond the watermark. A gap belongs to the run before it, so it costs nothing."""
        begin = None
        for offset in self._order:
            if offset in self._open:
                if begin is not None:
                    yield begin, offset
                    begin = None
            elif begin is None:
                begin = offset
        end = self._next
        for first, after in self._ahead:
            if begin is None:
                begin = max(first, watermark)
            elif first > end:
                yield begin, end
                begin = first
            end = after
        if begin is not None:
            yield begin, end

    def _is_anew(self) -> bool:
        """Whether this is the first record to come (rule 4); what is said of others is forgotten then."""
        if self._next != self._start:
            return False
        self._start = None
        self._ahead.clear()
        return True

    def _was_settled(self, offset: int) -> bool:
        self._pass(offset)
        return bool(self._ahead) and self._ahead[0][0] <= offset

    def _pass(self, offset: int) -> None:
        """Forget the settled runs that end here or earlier."""
        while self._ahead and self._ahead[0][1] <= offset:
            self._ahead.popleft()
