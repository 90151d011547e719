"""What a consumer does beside its work: say that it is alive, wake what waits, look how the group is.

Rule 1 (S4, S5): what is held is touched (XCLAIM JUSTID) far more often than anybody's claim-idle, however
        slow a syncer is; only if it is still ours. What somebody else has taken over loses its lease.
Rule 2: a consumer's name belongs to one process: a key with a token, renewed with the same script. A process
        that stood still for so long that another one has its name ends its connection and takes a new name.
Rule 3: entries that wait for another try are put back by whoever is alive.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import Final

from chronicle.core.notice import Notice
from chronicle.errors import ConnectionLost
from chronicle.transports.redis import scripts
from chronicle.transports.redis.answers import is_gone, word_of
from chronicle.transports.redis.choices import LIVELY, Choices
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import Claim
from chronicle.transports.redis.keys import Keys

ROBBED: Final = "redis.taken_over"
UNREAD_TRIMMED: Final = "redis.unread_trimmed"
LEASE: Final = 10_000  # milliseconds
CHUNK: Final = 500  # entries that one script touches
WAITING: Final = 5.0  # seconds between two looks at what waits, when nothing is known to be due
AT_ONCE: Final = 100  # entries that go back to the stream with one script
PATROL: Final = 5.0  # seconds between two looks at the group
TAKEN: Final = "TAKEN"


class Upkeep:
    """The chores of one consumer."""

    def __init__(
        self, keys: Keys, group: str, choices: Choices, held: dict[bytes, Claim], notices: deque[Notice]
    ) -> None:
        self._keys = keys
        self._group = group
        self._touch_every = min(choices.claim_idle, 4 * LIVELY) / 4
        self._held = held
        self._notices = notices
        self._trimmed = 0  # before they were read, so many are known of
        self._now = 0.0
        self.name_taken = False

    def begin(self, dialogue: Dialogue, consumer: str, token: str, now: float) -> None:
        """There is a new connection."""
        self._dialogue, self._consumer, self._token = dialogue, consumer, token
        self.name_taken = False
        self._touch_at = now  # who was away for long must hurry
        self._wake_at = now
        self._patrol_at = now + PATROL
        self._waking = False
        self._taking = True

    def plan(self, now: float, *, taking: bool) -> None:
        """Ask for what is due; who takes nothing in any more only says that it is alive."""
        self._now, self._taking = now, taking
        if now >= self._touch_at:
            self._touch_at = now + self._touch_every
            self._touch()
        if not taking:
            return
        if now >= self._wake_at and not self._waking:
            self._waking = True
            keys = (self._keys.stream, self._keys.waiting)
            self._dialogue.script(self._woke, scripts.PUT_BACK, keys, AT_ONCE)
        if now >= self._patrol_at:
            self._patrol_at = now + PATROL
            keys = (self._keys.stream, self._keys.waiting)
            arguments = (self._group, self._consumer, self._keys.lease(self._group))
            self._dialogue.script(self._saw, scripts.DEPTH, keys, *arguments, failed=self._no_group)

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
        since = self._now - self._touch_every / 2
        old = iter([claim for claim in self._held.values() if claim.fresh <= since])
        chunk = list(islice(old, CHUNK))
        while True:  # at least once: for the name
            for claim in chunk:
                claim.fresh = self._now
            proofs = [part for claim in chunk for part in (claim.id, claim.count)]
            keys = (self._keys.stream, self._keys.lease(self._group, self._consumer))
            arguments = (self._group, self._consumer, self._token, LEASE, *proofs)
            self._dialogue.script(self._touched, scripts.KEEP_FRESH, keys, *arguments, failed=self._untouched)
            chunk = list(islice(old, CHUNK))
            if not chunk:
                return

    def _touched(self, gone: Answer) -> None:
        robbed = 0
        for id_ in gone:
            claim = self._held.pop(id_, None)
            if claim is not None:
                claim.lease.end()
                robbed += 1
        if robbed:
            text = (
                "entries that are no longer ours: another consumer has taken them over, because this process "
                f"was frozen or cut off for longer than --claim-idle, or the group was deleted: {robbed}"
            )
            self._notices.append(Notice(ROBBED, logging.WARNING, text, {"count": robbed}))

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
        put_back, next_due = answer
        pause = WAITING if next_due < 0 else min(next_due / 1000, WAITING)
        self._wake_at = self._now if put_back == AT_ONCE else self._now + pause

    def _saw(self, answer: Answer) -> None:
        trimmed = answer[4]
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
