"""Verdicts on their way to Redis: acknowledged at once, everything else by a script that has to answer.

Rule 1: a verdict that moves an entry, or tries it again, is final when its script has answered. Until then
        the entry takes its place among those in work.
Rule 2 (S6, S-e): what the server does not take now is asked again later (refusals.py).
Rule 3 (S8): what was trimmed while it was in work exists only here. Its verdict is carried out all the same:
        the fields that came with it are sent along.
Rule 4: an entry that is not handled here goes back as it came, when the connection ends (D-11).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import time
from typing import Final

from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.policy import nobody_can_move
from chronicle.core.settlement import Fate, Settlement
from chronicle.transports.redis import scripts
from chronicle.transports.redis.acks import Acks
from chronicle.transports.redis.answers import is_gone
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import MOST_FIELDS, Claim, described
from chronicle.transports.redis.keys import Keys
from chronicle.transports.redis.refusals import Refusals

# What scripts answer.
DONE: Final = 1
SETTLED: Final = 0
TRIMMED: Final = 2  # another try, from memory


class Verdicts:
    """What was decided and not yet carried out."""

    def __init__(
        self,
        keys: Keys,
        group: str,
        tag: str,
        held: dict[bytes, Claim],
        aside: dict[bytes, Claim],
        acks: Acks,
        notices: deque[Notice],
        *,
        again: Callable[[Claim], None],
        waits: Callable[[float], None],
        clock: Callable[[], float] = time,
    ) -> None:
        """`again` hands a claim out for another try; `waits` is told how long something waits for one."""
        self.left: list[Claim] = []  # not handled here: they go back at the end
        self._aside = aside
        self._again = again
        self._waits = waits
        self._keys = keys
        self._group = group
        self._tag = tag
        self._held = held
        self._acks = acks
        self._clock = clock
        self._final: list[Settlement] = []
        self._retried: list[Claim] = []
        self._asked: dict[Claim, Settlement] = {}  # under way, or refused and waiting
        self._doubtful: set[Claim] = set()  # asked on a connection that was lost before the answer
        self._refusals = Refusals(keys, notices)

    def begin(self, dialogue: Dialogue, consumer: str) -> None:
        """There is a new connection: the engine sends again what had no answer on the old one."""
        self._dialogue, self._consumer = dialogue, consumer
        self._doubtful |= {claim for claim, asked in self._asked.items() if asked not in self._refusals}
        self._asked.clear()
        self._refusals.clear()

    def take_in(self, work: Sequence[Settlement], *, connected: bool) -> None:
        """Begin to carry these out."""
        held, acked = self._held, []
        for settlement in work:
            claim: Claim = settlement.delivery.handle
            if held.get(claim.id) is not claim or not connected:
                self._doubtful.discard(claim)
                settlement.fate = Fate.STALE
                self._final.append(settlement)
                continue
            action = settlement.verdict.action
            if action is Action.ACK or action is Action.DROP:
                del held[claim.id]
                if claim.trimmed:
                    self._acks.forget((claim.id,))
                else:
                    acked.append(claim.id)
                settlement.fate = Fate.DONE
                self._final.append(settlement)
            elif action is Action.LEAVE:
                self._leave(claim, settlement)
            elif len(claim.pairs) > 2 * MOST_FIELDS:
                self._put_aside(claim, settlement)
            elif claim not in self._asked:
                self._asked[claim] = settlement
                self._ask(settlement)
        self._acks.add(acked)

    def finals(self) -> list[Settlement]:
        """What became final since the last call; what is to be tried again is handed out from now on."""
        final, self._final = self._final, []
        retried, self._retried = self._retried, []
        for claim in retried:
            self._again(claim)
        return final

    def pending(self) -> Iterator[bytes]:
        """What is pending all the same: what goes back at the end, and what `finals` is about to hand out."""
        return (claim.id for claim in (*self.left, *self._retried))

    @property
    def has_news(self) -> bool:
        """Whether something became final since the last call of `finals`."""
        return bool(self._final)

    def plan(self, now: float) -> None:
        """Ask again for what was refused."""
        for settlement in self._refusals.due(now):
            if settlement.delivery.handle in self._asked:
                self._ask(settlement)

    def hurry(self) -> None:
        self._refusals.hurry()

    def _leave(self, claim: Claim, settlement: Settlement) -> None:
        settlement.fate = Fate.DONE
        self._final.append(settlement)
        self._doubtful.discard(claim)
        asked = self._asked.pop(claim, None)
        if asked is None or asked in self._refusals:
            self.left.append(claim)  # otherwise the answer decides
        del self._held[claim.id]

    def _put_aside(self, claim: Claim, settlement: Settlement) -> None:
        """No script can pass so many fields on: it stays pending, still touched, and in nobody's way."""
        del self._held[claim.id]
        claim.pairs = ()  # nobody needs them here any more, and they are many
        self._aside[claim.id] = claim
        settlement.verdict = nobody_can_move(settlement.verdict, f"it has more than {MOST_FIELDS} fields")
        settlement.fate = Fate.ASIDE
        self._final.append(settlement)

    # --- the scripts --------------------------------------------------------------------------------

    def _ask(self, settlement: Settlement) -> None:
        claim: Claim = settlement.delivery.handle
        verdict = settlement.verdict
        twice = claim in self._doubtful
        proof = (self._group, self._consumer, claim.id, claim.count)

        def answered(answer: Answer) -> None:
            self._answered(settlement, answer)

        def refused(error: Exception) -> None:
            self._was_refused(settlement, error)

        if verdict.action is Action.DEAD_LETTER:
            keys = (self._keys.stream, self._keys.dead_letters)
            look_back = scripts.LOOK_BACK if twice else 0
            fields = self._fields(settlement)
            self._dialogue.script(
                answered, scripts.DEAD_LETTER, keys, *proof, look_back, *fields, failed=refused
            )
        elif verdict.delay:
            milliseconds = math.ceil(verdict.delay * 1000)
            keys = (self._keys.stream, self._keys.waiting)
            fields = self._fields(settlement)
            self._dialogue.script(answered, scripts.WAIT, keys, *proof, milliseconds, *fields, failed=refused)
        else:
            keys_ = (self._keys.stream,)
            self._dialogue.script(
                answered, scripts.TRY_AGAIN, keys_, *proof, int(twice), claim.count + 1, failed=refused
            )

    def _fields(self, settlement: Settlement) -> list[bytes]:
        """Why, where, when and after how many tries: fields of their own next to the untouched others.

        They are the same however often it is asked, so that the script knows what it has written before.
        """
        claim: Claim = settlement.delivery.handle
        claim.decided = now = claim.decided or self._milliseconds()
        reason = settlement.verdict.reason
        return described(settlement.delivery, reason, consumer=self._tag, group=self._group, now=now)

    def _milliseconds(self) -> int:
        return int(self._clock() * 1000)

    def _answered(self, settlement: Settlement, answer: Answer) -> None:
        claim: Claim = settlement.delivery.handle
        if self._asked.pop(claim, None) is None:
            return  # left meanwhile
        # Asked twice, the answer that it was settled means that the first time worked.
        claim.trimmed = claim.trimmed or answer == TRIMMED
        done = answer in (DONE, TRIMMED) or (answer == SETTLED and claim in self._doubtful)
        self._doubtful.discard(claim)
        settlement.fate = Fate.DONE if done else Fate.STALE
        self._final.append(settlement)
        if self._held.get(claim.id) is claim:
            del self._held[claim.id]
        if answer not in (DONE, TRIMMED):
            return
        verdict = settlement.verdict
        if verdict.action is not Action.DEAD_LETTER:
            if verdict.delay:
                self._waits(verdict.delay)
            else:
                claim.failed = claim.failed or self._milliseconds()
                self._retried.append(claim)

    def _was_refused(self, settlement: Settlement, error: Exception) -> None:
        if is_gone(error):
            self._doubtful.discard(settlement.delivery.handle)  # nobody knows whether the first time worked
            self._answered(settlement, SETTLED)
        elif not self._refusals.keep(settlement, error):
            raise self._dialogue.end(error)
        elif settlement.delivery.handle not in self._asked:
            self.left.append(settlement.delivery.handle)  # left meanwhile
