"""Verdicts on their way into the file, kept until the file has taken them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from chronicle.core.outcome import Action
from chronicle.core.queues import dead_letter_queue
from chronicle.core.settlement import Fate, Settlement
from chronicle.transports.local.contents import story
from chronicle.transports.local.store import Claim, Store

GIVEN_UP: Final = "the queue file could not be written before the run ended"


class Verdicts:
    """What is decided and not yet written."""

    def __init__(self, tag: str, clock: Callable[[], float]) -> None:
        self._tag = tag
        self._clock = clock
        self._waiting: list[Settlement] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def take_in(self, work: Sequence[Settlement], token: str | None) -> list[Settlement]:
        """Keep what must be written; returns what is final without writing, with its fate."""
        stale = [settlement for settlement in work if settlement.delivery.handle.owner != token]
        mine = [settlement for settlement in work if settlement.delivery.handle.owner == token]
        left = [settlement for settlement in mine if settlement.verdict.action is Action.LEAVE]
        given_up = self._give_up(left) if left and self._waiting else []
        for settlement in stale:
            settlement.fate = Fate.STALE
        for settlement in left:
            settlement.fate = Fate.DONE
        self._waiting += [settlement for settlement in mine if settlement.verdict.action is not Action.LEAVE]
        return [*stale, *given_up, *left]

    def _give_up(self, left: Sequence[Settlement]) -> list[Settlement]:
        """These deliveries are no longer waited for: what was decided about them came too late."""
        leaving = {settlement.delivery for settlement in left}
        given_up = [settlement for settlement in self._waiting if settlement.delivery in leaving]
        self._waiting = [settlement for settlement in self._waiting if settlement.delivery not in leaving]
        for settlement in given_up:
            settlement.fate, settlement.error = Fate.FAILED, GIVEN_UP
        return given_up

    def write(self, store: Store) -> list[Settlement]:
        """Carry everything out in one transaction: all of it is final, or the error leaves all of it here."""
        with store.writing():
            fates = [self._carry_out(store, settlement) for settlement in self._waiting]
        done, self._waiting = self._waiting, []
        for settlement, fate in zip(done, fates, strict=True):
            settlement.fate = fate
        return done

    def forget(self) -> None:
        """The file is closed: its messages are free again."""
        self._waiting.clear()

    def _carry_out(self, store: Store, settlement: Settlement) -> Fate:
        claim: Claim = settlement.delivery.handle
        match settlement.verdict.action:
            case Action.REQUEUE | Action.RETRY:
                done = store.requeue(claim, self._back_at(settlement))
            case Action.DEAD_LETTER:
                queue = store.ensure_queue(dead_letter_queue(settlement.delivery.queue))
                done = store.move(claim, queue, story(settlement, self._tag, int(self._clock() * 1000)))
            case _:
                done = store.remove(claim)
        return Fate.DONE if done else Fate.STALE

    def _back_at(self, settlement: Settlement) -> int | None:
        delay = settlement.verdict.delay or 0.0
        return math.ceil((self._clock() + delay) * 1000) if delay > 0 else None
