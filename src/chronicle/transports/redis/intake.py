"""Entries on their way in: our own pending ones first, then new ones, now and then those of the dead.

Rule 1 (D-12, S3): after every connect our own pending list is read before anything new. What is known here
        is skipped, also what was settled while the question was under way. What was pending before we took
        the name was handed out before, so it counts as another try; what came later and is not known here
        was never seen, so it does not.
Rule 2 (D-7): one question at a time, for as many entries as there is room: what is on its way takes a place.
Rule 3: nothing waits on the connection that acknowledges. When there is nothing to read, a second connection
        listens for the next entry (bell.py).
Rule 4 (D-12): an entry whose consumers have died again and again is not handed out any more: it would kill
        the next one.
Rule 5 (S8): an entry that was trimmed while it was pending is counted and told; the syncer never sees it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from random import random
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.transports.redis import scripts
from chronicle.transports.redis.acks import Acks
from chronicle.transports.redis.answers import BUSY_GROUP, is_gone, word_of
from chronicle.transports.redis.bell import Bell
from chronicle.transports.redis.choices import Choices
from chronicle.transports.redis.connection import Answer, Argument, Wire
from chronicle.transports.redis.dialogue import Dialogue, Then
from chronicle.transports.redis.entries import Claim, delivery_of, group_meant
from chronicle.transports.redis.keys import Keys
from chronicle.transports.redis.window import Window

TRIMMED: Final = "redis.lost_trimmed"
CLAIMED: Final = "redis.claimed"
GROUP_MADE: Final = "redis.group_recreated"
NOT_OURS: Final = "redis.other_group"
BEGINNING: Final = b"0-0"
LOOK: Final = 1.0  # seconds between two reads of a stream that is silent: the group may have been deleted
VAIN: Final = 0.05  # seconds: of many that hear one entry, one gets it; the others wait a moment (R-001-26)
SWEEP: Final = (1.0, 15.0)  # seconds between two searches for what the dead left, at least and at most
STEP: Final = 0.1  # seconds between two steps of such a search
MOST: Final = 100  # entries that a step takes over
DELIVERIES: Final = 20  # of one entry: whoever had it died every time, so it is the entry (D-12)


class Intake:
    """What comes from one stream for one consumer of a group."""

    def __init__(
        self,
        keys: Keys,
        group: str,
        choices: Choices,
        prefetch: int,
        held: dict[bytes, Claim],
        acks: Acks,
        notices: deque[Notice],
        known: Callable[[], Collection[bytes]],
        *,
        luck: Callable[[], float] = random,
    ) -> None:
        """`known` is what may be pending under our name and needs no reading: held, settled or put aside."""
        self.ready: deque[Delivery] = deque()
        self.worn: list[Delivery] = []  # delivered so often that nobody should try again
        self.rereading = True  # our own pending list has not been read to its end
        self._keys = keys
        self._group = group
        self._fields = choices.fields
        self._claim_after = round(choices.claim_idle * 1000)
        self._sweep_every = min(max(choices.claim_idle / 2, SWEEP[0]), SWEEP[1])
        self._window = Window(prefetch)
        self._held = held
        self._acks = acks
        self._notices = notices
        self._known = known
        self._luck = luck
        self._now = 0.0
        self._named_at = 0.0  # when we took our name
        self._reset()

    def _reset(self) -> None:
        self._asked = 0  # entries that may be on their way
        self._after = BEGINNING
        self._hungry = True  # there may be more to read right now
        self._newest: bytes | None = None  # as of just before the question that is under way
        self._listen_at = self._look_at = 0.0
        self._sweep_at = self._now
        self._cursor: bytes = BEGINNING

    def begin(self, dialogue: Dialogue, bell: Wire, consumer: str, *, new_name: bool, now: float) -> None:
        """There is a new connection; with a new name, its pending entries are from an earlier process."""
        self._dialogue, self._consumer, self._now = dialogue, consumer, now
        self._bell = Bell(self._keys.stream, bell)
        if new_name:
            self._named_at = now
        self.rereading = True
        self._reset()

    # --- asking -------------------------------------------------------------------------------------

    def plan(self, room: int, now: float) -> None:
        """Ask for what there is room for."""
        self._now = now
        free = room - len(self.ready)
        if self._asked or not self._window.is_worth_it(free, now):
            return
        if self.rereading:
            self._asked = min(free, MOST)
            # A second more: a name is free only when its last owner has been silent for longer than that.
            since = round((now - self._named_at + 1.0) * 1000)
            self._run(self._reread, scripts.OWN_PENDING, self._after, self._asked, since)
        elif now >= self._sweep_at:
            self._asked = min(free, MOST)
            self._sweep_at = now + self._sweep_every
            self._run(self._taken_over, scripts.TAKE_OVER, self._claim_after, self._cursor, self._asked)
        elif self._hungry or (self._bell.listening and now >= self._look_at):
            self._read(free)
        elif not self._bell.listening and now >= self._listen_at:
            self._dialogue.script(self._saw_newest, scripts.NEWEST, (self._keys.stream,))
            self._read(free)

    def _run(self, then: Then, script: str, *arguments: Argument) -> None:
        self._window.asked(self._now)
        mine = (self._group, self._consumer)
        self._dialogue.script(then, script, (self._keys.stream,), *mine, *arguments, failed=self._failed)

    def _read(self, number: int) -> None:
        self._asked = number
        self._window.asked(self._now)
        command = ("XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", number)
        self._dialogue.ask(self._came, *command, "STREAMS", self._keys.stream, ">", failed=self._failed)

    # --- the answers --------------------------------------------------------------------------------

    def _saw_newest(self, answer: Answer) -> None:
        self._newest = answer

    def _came(self, answer: Answer) -> None:
        """New entries, or none."""
        wanted, self._asked = self._asked, 0
        newest, self._newest = self._newest, None
        self._look_at = self._now + LOOK
        entries = answer[0][1] if answer else ()
        for id_, pairs in entries:
            self._take(id_, 1, pairs)
        self._hungry = len(entries) == wanted
        if entries:
            self._bell.rang = False
        elif newest is not None:
            if self._bell.rang:
                self._bell.rang = False
                self._listen_at = self._now + self._luck() * VAIN
            else:
                self._bell.listen(newest)

    def _reread(self, answer: Answer) -> None:
        self._asked = 0
        last, entries, gone = answer
        known = self._known()
        for id_, count, pairs in entries:
            if id_ not in known:
                self._take(id_, count, pairs)
        self._forget_trimmed(gone, known)
        if last is None:
            self.rereading = False
        else:
            self._after = last

    def reread(self) -> None:
        """Read our own pending list again: something is in it that nobody here knows of."""
        if not self.rereading:
            self.rereading, self._after = True, BEGINNING

    def _taken_over(self, answer: Answer) -> None:
        self._asked = 0
        self._cursor, entries, gone = answer
        known = self._known()
        for id_, count, pairs in entries:
            if id_ in self._held:
                self._held[id_].count = count  # we were too slow to touch it
            elif id_ not in known:
                self._take(id_, count, pairs)
        self._forget_trimmed(gone, known)
        if self._cursor != BEGINNING:
            self._sweep_at = self._now + STEP
        if entries:
            text = f"entries taken over from consumers that are gone: {len(entries)}"
            self._notices.append(Notice(CLAIMED, logging.WARNING, text, {"count": len(entries)}))

    def _take(self, id_: bytes, count: int, pairs: list[bytes]) -> None:
        if len(pairs) > 2 and self._is_for_others(pairs):
            self._acks.add((id_,))
            return
        self._held[id_] = claim = Claim(id_, count, pairs, self._now)
        place = self.ready if count <= DELIVERIES else self.worn
        place.append(delivery_of(claim, self._keys.stream, self._fields))

    def _is_for_others(self, pairs: list[bytes]) -> bool:
        """Whether another group put it back on the stream for another try: to us it is no news."""
        meant = group_meant(pairs, self._keys.stream)
        if meant is None or meant == self._group.encode():
            return False
        text = "an entry was passed over: another group's dead letter or retry came back to the stream"
        self._notices.append(Notice(NOT_OURS, logging.INFO, text))
        return True

    def again(self, claim: Claim) -> None:
        """Hand this one out once more, with its new count."""
        self._held[claim.id] = another = claim.again(self._now)
        self.ready.append(delivery_of(another, self._keys.stream, self._fields))

    def _forget_trimmed(self, ids: list[bytes], known: Collection[bytes]) -> None:
        """Nothing is left of these, unless they are in work here."""
        gone = [id_ for id_ in ids if id_ not in known]
        self._acks.forget(gone)
        if gone:
            text = (
                "entries that were deleted or trimmed from the stream while they were pending, and are lost "
                f"(let producers keep more: MAXLEN): {len(gone)}"
            )
            self._notices.append(Notice(TRIMMED, logging.ERROR, text, {"count": len(gone)}))

    def serve_bell(self, *, came: bool) -> None:
        """See whether something was added. Raises ConnectionLost."""
        self._bell.serve(came=came)

    def stop(self) -> None:
        """Nothing is read any more."""
        self._bell.hang_up()

    # --- a group that is gone -----------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        """Make the group again if it was deleted (S7); anything else ends the connection."""
        self._asked = 0
        if not is_gone(error):
            raise self._dialogue.end(error)
        # From the beginning: whatever was added since must not be passed over.
        command = ("XGROUP", "CREATE", self._keys.stream, self._group, "0", "MKSTREAM")
        self._dialogue.ask(self._made, *command, failed=self._not_made)

    def _made(self, _answer: Answer) -> None:
        text = (
            f"the stream {self._keys.stream!r} or its group {self._group!r} was deleted: what was unread or "
            "in work is gone with it; the group was created again and begins with the oldest entry"
        )
        self._notices.append(Notice(GROUP_MADE, logging.ERROR, text))
        self._reset()

    def _not_made(self, error: Exception) -> None:
        if word_of(error) != BUSY_GROUP:  # another consumer was faster
            raise self._dialogue.end(error)
        self._reset()
