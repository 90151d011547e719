"""What a consumer does beside its work: say that it is alive, wake what waits, look how the group is.

Rule 1 (S4, S5): what is held is touched (XCLAIM JUSTID) far more often than anybody's claim-idle, however
        slow a syncer is; only if it is still ours. What somebody else has taken over loses its lease.
Rule 2: a consumer's name belongs to one process: a key with a token, renewed with the same script. A process
        that stood still for so long that another one has its name ends its connection and takes a new name.
Rule 3: nothing is read under a name that may be another process's by now: after a long silence the touch has
        to be answered first. What is in our pending list and nobody knows of is read again.
Rule 4: entries that wait for another try are put back by whoever is alive.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from chronicle.core.notice import Notice
from chronicle.errors import ConnectionLost
from chronicle.transports.redis import scripts
from chronicle.transports.redis.answers import OOM, PASSING, is_gone, word_of
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.depth import Depth
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import Claim
from chronicle.transports.redis.keys import Keys
from chronicle.transports.redis.options import LIVELY

ROBBED: Final = "redis.taken_over"
UNREAD_TRIMMED: Final = "redis.unread_trimmed"
TRIMMED_IN_WORK: Final = "redis.trimmed_in_work"
STRANGE: Final = "redis.strange_retry"
NOT_WOKEN: Final = "redis.retry_delayed"
LEASE: Final = 10_000  # milliseconds
ALIVE: Final = LEASE - round(LIVELY * 1000)  # milliseconds that the lease of a living consumer has left
TOUCH: Final = LIVELY / 4  # seconds between two touches: nobody may claim what is younger than LIVELY
TELL: Final = 30.0  # seconds between two lines about the same trouble
CHUNK: Final = 500  # entries that one script touches
WAITING: Final = 5.0  # seconds between two looks at what waits, when nothing is known to be due
AT_ONCE: Final = 100  # entries that go back to the stream with one script
PATROL: Final = 5.0  # seconds between two looks at the group
TAKEN: Final = "TAKEN"


class Upkeep:
    """The chores of one consumer."""

    def __init__(
        self,
        keys: Keys,
        held: dict[bytes, Claim],
        aside: dict[bytes, Claim],
        notices: deque[Notice],
        own_pending: Callable[[int], None],
    ) -> None:
        """`own_pending` is told from time to time how many entries are pending under our name."""
        self._keys = keys
        self._group = keys.group
        self._own_pending = own_pending
        self._held = held
        self._aside = aside
        self._notices = notices
        self.waiting: int | None = None  # for the group, as the server last said
        self._trimmed: int | None = None  # before they were read, so many are known of
        self._told_at = -TELL
        self._now = 0.0
        self.name_taken = False

    def begin(self, dialogue: Dialogue, consumer: str, token: str, now: float) -> None:
        """There is a new connection."""
        self._dialogue, self._consumer, self._token = dialogue, consumer, token
        self.name_taken = False
        self._touch_at = now  # who was away for long must hurry
        self._confirmed = now  # the name was ours then
        self._wake_at = now
        self._patrol_at = now + PATROL
        self._waking = False
        self._taking = True

    def plan(self, now: float, *, taking: bool) -> None:
        """Ask for what is due; who takes nothing in any more only says that it is alive."""
        self._now, self._taking = now, taking
        if now >= self._touch_at:
            self._touch_at = now + TOUCH
            self._touch()
        if not taking:
            return
        if now >= self._wake_at and not self._waking:
            self._waking = True
            keys = (self._keys.stream, self._keys.waiting)
            self._dialogue.script(self._woke, scripts.PUT_BACK, keys, AT_ONCE, failed=self._did_not_wake)
        if now >= self._patrol_at:
            self._patrol_at = now + PATROL
            self.look()

    def is_sure(self, now: float) -> bool:
        """Whether the name must be ours."""
        return now - self._confirmed < LEASE / 2000

    def waits_until(self, seconds: float) -> None:
        """Something goes back to the stream after so long."""
        self._wake_at = min(self._wake_at, self._now + seconds)

    def next_chore(self, now: float) -> float:
        """Seconds until something is due."""
        due = [self._touch_at]
        if self._taking:
            due.append(self._patrol_at)
            if not self._waking:  # otherwise the answer says when
                due.append(self._wake_at)
        return max(0.0, min(due) - now)

    # --- freshness ----------------------------------------------------------------------------------

    def _touch(self) -> None:
        since = self._now - TOUCH / 2
        everything = (*self._held.values(), *self._aside.values())
        old = [claim for claim in everything if claim.fresh <= since]
        for start in range(0, max(1, len(old)), CHUNK):  # at least once: for the name
            self._touch_chunk(old[start : start + CHUNK], self._now)

    def _touch_chunk(self, chunk: list[Claim], now: float) -> None:
        counts = {claim.id: (claim, claim.count) for claim in chunk}
        for claim in chunk:
            claim.fresh = now

        def touched(answer: Answer) -> None:
            self._confirmed = now
            gone, trimmed = answer
            self._end_leases([counts[id_] for id_ in gone])
            self._tell_of_trimmed([counts[id_][0] for id_ in trimmed])

        proofs = [part for claim in chunk for part in (claim.id, claim.count)]
        keys = (self._keys.stream, self._keys.lease(self._consumer))
        arguments = (self._group, self._consumer, self._token, LEASE, *proofs)
        self._dialogue.script(touched, scripts.KEEP_FRESH, keys, *arguments, failed=self._untouched)

    def _end_leases(self, gone: list[tuple[Claim, int]]) -> None:
        """Unless a verdict of ours has changed the claim since it was asked."""
        robbed = 0
        for claim, count in gone:
            if claim.count == count and self._held.get(claim.id) is claim:
                del self._held[claim.id]
                claim.end()
                robbed += 1
            elif self._aside.get(claim.id) is claim:
                del self._aside[claim.id]
        if robbed:
            text = (
                "entries that are no longer ours: another consumer has taken them over, because this process "
                f"was frozen or cut off for longer than --claim-idle, or the group was deleted: {robbed}"
            )
            self._notices.append(Notice(ROBBED, logging.WARNING, text, {"count": robbed}))

    def _tell_of_trimmed(self, trimmed: list[Claim]) -> None:
        news = [claim for claim in trimmed if not claim.trimmed]
        for claim in news:
            claim.trimmed = True
        if news:
            text = (
                "entries that were deleted or trimmed from the stream while they were in work here; they are "
                f"handled all the same (let producers keep more: MAXLEN): {len(news)}"
            )
            self._notices.append(Notice(TRIMMED_IN_WORK, logging.WARNING, text, {"count": len(news)}))

    def _untouched(self, error: Exception) -> None:
        if word_of(error) == TAKEN:
            self.name_taken = True
            raise ConnectionLost(
                f"{self._dialogue.wire.address.place}: another process uses the name {self._consumer!r} now; "
                "was this one frozen?"
            )
        self._no_group(error)

    # --- waiting entries, and the group -------------------------------------------------------------

    def _woke(self, answer: Answer) -> None:
        self._waking = False
        put_back, next_due, strange = answer
        if strange:
            text = f"members of {self._keys.waiting} that are not chronicle's, and are left alone: {strange}"
            self._notices.append(Notice(STRANGE, logging.ERROR, text, {"count": strange}))
        pause = WAITING if next_due < 0 else min(next_due / 1000, WAITING)
        self._wake_at = self._now if put_back == AT_ONCE else self._now + pause

    def _did_not_wake(self, error: Exception) -> None:
        """What waits can wait longer: reading and acknowledging go on."""
        if word_of(error) in PASSING and word_of(error) != OOM:
            raise self._dialogue.end(error)
        self._waking = False
        self._wake_at = self._now + WAITING
        if self._now - self._told_at >= TELL:
            self._told_at = self._now
            why = PASSING.get(word_of(error), f"the server answered {word_of(error)}")
            text = f"entries in {self._keys.waiting} whose time has come cannot go back to the stream: {why}"
            self._notices.append(Notice(NOT_WOKEN, logging.ERROR, text))

    def look(self) -> None:
        """Look how the group is."""
        keys = (self._keys.stream, self._keys.waiting)
        arguments = (self._group, self._consumer, self._keys.lease(), ALIVE)
        self._dialogue.script(self._saw, scripts.DEPTH, keys, *arguments, failed=self._no_group)

    def _saw(self, answer: Answer) -> None:
        depth = Depth(*answer)
        self._own_pending(depth.own)
        self.compare(depth)

    def compare(self, depth: Depth) -> None:
        """Tell what was trimmed before it was read; at the beginning, only what we would read next."""
        self.waiting = depth.free
        trimmed = depth.trimmed
        if self._trimmed is None:
            self._trimmed = 0 if depth.unread else trimmed
        if trimmed > self._trimmed:
            lost = trimmed - self._trimmed
            text = (
                f"entries that were trimmed from the stream before the group {self._group!r} had read them, "
                f"and are lost (let producers keep more: MAXLEN; or add consumers): {lost}"
            )
            self._notices.append(Notice(UNREAD_TRIMMED, logging.ERROR, text, {"count": lost}))
        self._trimmed = max(trimmed, self._trimmed)

    def _no_group(self, error: Exception) -> None:
        """The next read makes the group again (intake.py); anything else ends the connection."""
        if not is_gone(error):
            raise self._dialogue.end(error)
