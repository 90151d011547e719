"""Entries on their way in, read without a group.

Rule 1: a reader without a group takes nothing out of a stream, and nobody but us knows where we are: reading
        goes on after the entry that was read last, on whatever connection. So a reconnect repeats nothing
        and passes nothing over.
Rule 2 (D-7): one question at a time, for as many entries as there is room; when there is nothing to read, a
        second connection listens for the next entry (bell.py).
Rule 3 (S7): a stream that was deleted and begun again is read from its beginning. One that lost its end (a
        failover) but has entries we know is read on from there. Both are told.
Rule 4 (S8): what was trimmed before it was read can be counted only where Redis counts what it adds, and we
        know how many of those we have read; then it is told. Otherwise nothing is said.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.words import many
from chronicle.transports.redis import scripts
from chronicle.transports.redis.bell import Bell
from chronicle.transports.redis.choices import Choices
from chronicle.transports.redis.connection import Answer, Wire
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import Claim, delivery_of, group_meant
from chronicle.transports.redis.keys import Keys
from chronicle.transports.redis.position import BEGINNING, Position, number
from chronicle.transports.redis.upkeep import UNREAD_TRIMMED
from chronicle.transports.redis.window import Window

REPLACED: Final = "redis.stream_replaced"
PATROL: Final = 1.0  # seconds between two looks at the stream as a whole
RECENT: Final = 1000  # entries that we would know again
NOTHING_DELETED: Final = (b"", BEGINNING)


class CursorIntake:
    """What comes from one stream after our position."""

    def __init__(
        self,
        keys: Keys,
        choices: Choices,
        prefetch: int,
        held: dict[bytes, Claim],
        position: Position,
        notices: deque[Notice],
    ) -> None:
        self.ready: deque[Delivery] = deque()
        self.waiting: int | None = None  # unread, as of the last look
        self._keys = keys
        self._fields = choices.fields
        self._window = Window(prefetch)
        self._held = held
        self._position = position
        self._notices = notices
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._counted: int | None = None  # of those ever added, how many are behind us; None: unknown
        self._stopped = False

    def begin(self, dialogue: Dialogue, bell: Wire, now: float) -> None:
        """There is a new connection."""
        self._dialogue = dialogue
        self._bell = Bell(self._keys.stream, bell)
        self._asked = 0  # entries that may be on their way
        self._hungry = True  # there may be more to read right now
        self._looking = False
        self._look_at = now
        self._stopped = False

    # --- asking -------------------------------------------------------------------------------------

    def plan(self, room: int, now: float) -> None:
        """Ask for what there is room for."""
        if now >= self._look_at and not self._looking:
            self._looking = True
            self._look_at = now + PATROL
            self._dialogue.script(self._looked, scripts.SPAN, (self._keys.stream,))
        free = room - len(self.ready)
        if self._asked or not self._window.is_worth_it(free, now):
            return
        if self._hungry or self._bell.rang:
            self._asked = free
            self._window.asked(now)
            self._bell.rang = False
            command = ("XREAD", "COUNT", free, "STREAMS", self._keys.stream, self._position.last)
            self._dialogue.ask(self._came, *command)
        elif not self._bell.listening:
            self._bell.listen(self._position.last)

    def next_chore(self, now: float) -> float:
        """Seconds until something is due."""
        return float("inf") if self._looking or self._stopped else max(0.0, self._look_at - now)

    def serve_bell(self) -> None:
        """See whether something was added. Raises ConnectionLost."""
        self._bell.serve()

    # --- the answers --------------------------------------------------------------------------------

    def _came(self, answer: Answer) -> None:
        wanted, self._asked = self._asked, 0
        if self._stopped:
            return  # it was not read: the position stays before it
        entries = answer[0][1] if answer else ()
        for id_, pairs in entries:
            self._take(id_, pairs)
        self._hungry = len(entries) == wanted
        self._recent.extend(id_ for id_, _ in entries)
        if self._counted is not None:
            self._counted += len(entries)

    def _take(self, id_: bytes, pairs: list[bytes]) -> None:
        self._position.read(id_)
        if len(pairs) > 2 and group_meant(pairs, self._keys.stream):
            # A group put it back on the stream for another try: to us it is no news.
            self._position.settled(id_)
            return
        self._held[id_] = claim = Claim(id_, 1, pairs, 0.0)
        self.ready.append(delivery_of(claim, self._keys.stream, self._fields))

    def again(self, claim: Claim) -> None:
        """Hand this one out once more, with its new count."""
        self._held[claim.id] = another = claim.again(0.0)
        self.ready.append(delivery_of(another, self._keys.stream, self._fields))

    def stop(self) -> None:
        """Read nothing more; what nobody has begun with is left unread, but another try is still ours.

        Otherwise what was settled after that entry would be handled again by the next run.
        """
        self._stopped = True
        kept = [delivery for delivery in self.ready if delivery.handle.count > 1]
        for delivery in self.ready:
            if delivery.handle.count == 1:
                del self._held[delivery.handle.id]
        self.ready.clear()
        self.ready.extend(kept)

    # --- the stream as a whole ----------------------------------------------------------------------

    def _looked(self, answer: Answer) -> None:
        self._looking = False
        if not self._stopped:
            self.saw(answer)

    def saw(self, answer: Answer) -> None:
        """Compare the stream with what we have read of it."""
        position = self._position
        newest: bytes = BEGINNING if answer is None else answer[0]
        if position.known and number(newest) < number(position.last):
            self._go_back(newest)
        elif number(newest) > number(position.last):
            self._hungry = True
        if answer is not None:
            self._count(*answer)
        self.waiting = self._unread(answer)

    def _unread(self, answer: Answer) -> int | None:
        """How many entries wait, where Redis can tell."""
        if answer is None:
            return 0
        newest, oldest, length, added, _ = answer
        last = number(self._position.last)
        if not oldest or number(newest) <= last:
            return 0
        if number(oldest) > last:
            return int(length)
        return None if self._counted is None else int(added) - self._counted

    def _go_back(self, newest: bytes) -> None:
        if newest in self._recent:
            self._position.lost_end(newest)
            what = "has lost its newest entries (a failover?); reading goes on after the newest that is left"
        else:
            self._position.restart()
            what = "was deleted: what was unread is gone with it; reading goes on with its oldest entry"
        self._counted = None
        self._recent.clear()
        self._hungry = True
        text = f"the stream {self._keys.stream!r} {what}"
        self._notices.append(Notice(REPLACED, logging.ERROR, text))

    def _count(self, newest: bytes, oldest: bytes, length: int, added: int, deleted: bytes) -> None:
        """Tell of unread entries that are gone, as far as the stream's own counts show it."""
        last = self._position.last
        if added < 0 or deleted not in NOTHING_DELETED:
            self._counted = None
            return
        if number(newest) <= number(last):
            behind = added
        elif not oldest or number(oldest) > number(last):
            behind = added - length
        else:
            return
        gone = 0 if self._counted is None else behind - self._counted
        self._counted = behind
        if gone > 0:
            text = (
                f"{many(gone, 'entry was', 'entries were')} trimmed from the stream unread, and lost; let "
                "producers keep more (MAXLEN), or raise --concurrency"
            )
            self._notices.append(Notice(UNREAD_TRIMMED, logging.ERROR, text, {"count": gone}))
