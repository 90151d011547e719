"""Where a reader without a group is in its stream, and the key that keeps it.

Rule 1 (D-12): the position moves only over settled entries. What was read later and is settled already does
        not move it past an entry that is in work or waits: a restart reads from the position, so that nothing
        is passed over, and handles those later ones again.
Rule 2: the key is written by a script that never moves it back, together with the next read, and at a clean
        end its confirmation is waited for. It is never ahead of what is settled, so a killed process loses
        nothing. Only a stream that was deleted and begun again moves it back.
"""

from __future__ import annotations

import logging
from collections import deque
from time import monotonic
from typing import Final, TypeAlias

from chronicle.core.notice import Notice
from chronicle.transports.redis import scripts
from chronicle.transports.redis.answers import OOM, word_of
from chronicle.transports.redis.choices import ID
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue

NOT_SAVED: Final = "redis.cursor_not_saved"
BEGINNING: Final = b"0-0"
LATER: Final = 1.0  # seconds until a position that the server did not take is sent again
TELL: Final = 30.0  # seconds between two lines about that

Mark: TypeAlias = tuple[bytes, int]  # an entry, and how many had been read when it was the last


def is_id(text: bytes) -> bool:
    return ID.fullmatch(text.decode("ascii", "replace")) is not None


def full(text: str) -> bytes:
    """An id with both its numbers."""
    return (text if "-" in text else f"{text}-0").encode()


def number(id_: bytes) -> tuple[int, int]:
    """For comparing ids."""
    first, _, second = id_.partition(b"-")
    return int(first), int(second)


class Position:
    """The entries that were read and not settled, in order, and where the first of them stands."""

    def __init__(self, key: str, notices: deque[Notice]) -> None:
        self.key = key  # empty: the position is kept in this process only
        self.last = BEGINNING  # the entry that was read last
        self.known = False  # `last` was once in the stream; otherwise the operator chose it
        self._read = 0  # how many entries
        self._open: dict[bytes, Mark] = {}  # each with the mark before it
        self._notices = notices
        self._kept: bytes | None = None  # what the key is known to hold
        self._covered = 0  # of the entries that were read, how many are behind the key
        self._sent: tuple[Mark, bool] | None = None  # under way, and whether it may be smaller
        self._back = False  # the next one may be smaller
        self._again_at = 0.0
        self._told_at = -TELL

    def begin(self, at: bytes, *, known: bool, kept: bool) -> None:
        """Read on after this entry; `kept` if the key holds it."""
        self.last, self.known = at, known
        self._kept = at if kept else None
        self._read = self._covered = 0
        self._open.clear()

    def restart(self) -> None:
        """The stream is another one: what is in work does not count any more."""
        self.begin(BEGINNING, known=False, kept=False)
        self._go_back()

    def lost_end(self, newest: bytes) -> None:
        """The stream has lost what came after this entry."""
        left = {id_: before for id_, before in self._open.items() if number(id_) <= number(newest)}
        self._open, self.last = left, newest
        self._go_back()

    def _go_back(self) -> None:
        """The key may be ahead now, whatever it is known to hold: a save under way says nothing of that."""
        self._kept = self._sent = None
        self._back = True

    def rewind(self) -> None:
        """What is not settled will be read again."""
        self.last, self._read = self._mark
        self._open.clear()

    # --- the watermark ------------------------------------------------------------------------------

    def read(self, id_: bytes) -> None:
        self._open[id_] = self.last, self._read
        self.last, self.known = id_, True
        self._read += 1

    def settled(self, id_: bytes) -> None:
        self._open.pop(id_, None)

    @property
    def settled_to(self) -> bytes:
        """Every entry up to this one is settled."""
        return self._mark[0]

    @property
    def _mark(self) -> Mark:
        for before in self._open.values():
            return before
        return self.last, self._read

    # --- the key ------------------------------------------------------------------------------------

    @property
    def is_saved(self) -> bool:
        return not self.key or not self.known or self._kept == self.settled_to

    @property
    def unsaved(self) -> int:
        """How many entries were settled and would be handled again by a restart, as the key is behind."""
        return 0 if self.is_saved else self._read - len(self._open) - self._covered

    def connected(self) -> None:
        """What was under way on the last connection may have been lost."""
        self._sent = None

    def save(self, dialogue: Dialogue) -> None:
        """Send the position with the next questions, if it has moved; one at a time."""
        if self._sent is not None or self.is_saved or monotonic() < self._again_at:
            return
        mark, back = sent = self._sent = self._mark, self._back

        def saved(answer: Answer) -> None:
            if self._sent is sent:  # otherwise the stream is another one by now
                self._saved(mark, ahead=answer == 0)

        def failed(error: Exception) -> None:
            if word_of(error) != OOM:
                raise dialogue.end(error)
            if self._sent is sent:
                self._wait_for_memory()

        dialogue.script(saved, scripts.SAVE_CURSOR, (self.key,), mark[0], int(back), failed=failed)

    def hurry(self) -> None:
        self._again_at = 0.0

    def _saved(self, mark: Mark, *, ahead: bool) -> None:
        """The key is where we are; or it is `ahead`, and asking again would not change that."""
        (self._kept, self._covered), self._sent, self._back = mark, None, False
        if ahead and self._may_tell(monotonic()):
            self._tell(
                "the position was not saved: the key holds a later one, because another process uses it too; "
                "a restart would begin there (give each of them a key of its own)"
            )

    def _wait_for_memory(self) -> None:
        now = monotonic()
        self._sent, self._again_at = None, now + LATER
        if self._may_tell(now):
            self.tell("the server is out of memory (maxmemory)")

    def _may_tell(self, now: float) -> bool:
        if now - self._told_at < TELL:
            return False
        self._told_at = now
        return True

    def tell(self, why: str) -> None:
        """The key is behind."""
        self._tell(f"the position could not be saved: {why}; a restart would handle entries again")

    def _tell(self, text: str) -> None:
        self._notices.append(Notice(NOT_SAVED, logging.ERROR, text, {"cursor": self.key}))
