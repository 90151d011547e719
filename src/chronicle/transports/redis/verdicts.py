"""Verdicts on their way to Redis: acknowledged at once, everything else by a script that has to answer.

Rule 1: a verdict that moves an entry, or tries it again, is final when its script has answered. Until then
        the entry takes its place among those in work.
Rule 2 (S6, S-e): what the server does not take now (no memory, a key of the wrong type) is asked again later:
        the entry stays pending and held, and the log says why. Nothing is lost, and nothing is acknowledged.
Rule 3: an entry that is not handled here goes back as it came, when the connection ends (D-11).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Any, Final

from chronicle.core.deadletters.death import FIRST, failed
from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.policy import nobody_can_move
from chronicle.core.settlement import Fate, Settlement
from chronicle.transports.redis import scripts
from chronicle.transports.redis.acks import Acks
from chronicle.transports.redis.answers import OOM, WRONG_TYPE, is_gone, word_of
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import GROUP, MOST_FIELDS, ORIGIN, Claim, described
from chronicle.transports.redis.keys import Keys

REFUSED: Final = "redis.refused"
OUT_OF_MEMORY: Final = "redis.out_of_memory"
LATER: Final = 1.0  # seconds until a verdict that was refused is tried again
TELL: Final = 30.0  # seconds between two lines about that
DONE: Final = 1


class Verdicts:
    """What was decided and not yet carried out."""

    def __init__(
        self,
        keys: Keys,
        group: str,
        tag: str,
        held: dict[bytes, Claim],
        acks: Acks,
        notices: deque[Notice],
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self.left: list[Claim] = []  # not handled here: they go back at the end
        self.again: Callable[[Claim], None]
        self.waits: Callable[[float], None]
        self._keys = keys
        self._group = group
        self._tag = tag
        self._held = held
        self._acks = acks
        self._notices = notices
        self._clock = clock
        self._final: list[Settlement] = []
        self._asked: dict[bytes, Settlement] = {}  # under way, or refused and waiting
        self._refused: list[Settlement] = []
        self._retry_at = 0.0
        self._told_at = -TELL

    def begin(self, dialogue: Dialogue, consumer: str) -> None:
        """There is a new connection: the engine sends again what had no answer on the old one."""
        self._dialogue, self._consumer = dialogue, consumer
        self._asked.clear()
        self._refused.clear()

    @property
    def open(self) -> bool:
        """Whether a verdict waits for its answer."""
        return bool(self._asked)

    def take_in(self, work: Sequence[Settlement], *, connected: bool) -> None:
        """Begin to carry these out."""
        held, acked = self._held, []
        for settlement in work:
            claim: Claim = settlement.delivery.handle
            if held.get(claim.id) is not claim or not connected:
                settlement.fate = Fate.STALE
                self._final.append(settlement)
                continue
            action = settlement.verdict.action
            if action is Action.ACK or action is Action.DROP:
                del held[claim.id]
                acked.append(claim.id)
                settlement.fate = Fate.DONE
                self._final.append(settlement)
            elif action is Action.LEAVE:
                self._leave(claim, settlement)
            elif len(claim.pairs) > 2 * MOST_FIELDS:
                self._put_aside(settlement)
            elif claim.id not in self._asked:
                self._asked[claim.id] = settlement
                self._ask(settlement)
        self._acks.add(acked)

    def finals(self) -> list[Settlement]:
        """What became final since the last call."""
        final, self._final = self._final, []
        return final

    def plan(self, now: float) -> None:
        """Ask again for what was refused."""
        if self._refused and now >= self._retry_at:
            refused, self._refused = self._refused, []
            for settlement in refused:
                if settlement.delivery.handle.id in self._asked:
                    self._ask(settlement)

    def hurry(self) -> None:
        self._retry_at = 0.0

    def _leave(self, claim: Claim, settlement: Settlement) -> None:
        settlement.fate = Fate.DONE
        self._final.append(settlement)
        if self._asked.pop(claim.id, None) is None:
            self.left.append(claim)
        del self._held[claim.id]

    def _put_aside(self, settlement: Settlement) -> None:
        """No script can pass so many fields on: it stays pending, still touched, and in nobody's way."""
        settlement.verdict = nobody_can_move(settlement.verdict, f"it has more than {MOST_FIELDS} fields")
        settlement.fate = Fate.ASIDE
        self._final.append(settlement)

    # --- the scripts --------------------------------------------------------------------------------

    def _ask(self, settlement: Settlement) -> None:
        claim: Claim = settlement.delivery.handle
        verdict = settlement.verdict
        proof = (self._group, self._consumer, claim.id, claim.count)

        def answered(answer: Answer) -> None:
            self._answered(settlement, answer)

        def refused(error: Exception) -> None:
            self._was_refused(settlement, error)

        if verdict.action is Action.DEAD_LETTER:
            keys = (self._keys.stream, self._keys.dead_letters)
            fields = described(claim, self._story(settlement))
            self._dialogue.script(answered, scripts.DEAD_LETTER, keys, *proof, *fields, failed=refused)
        elif verdict.delay:
            milliseconds = math.ceil(verdict.delay * 1000)
            keys = (self._keys.stream, self._keys.waiting)
            fields = described(claim, self._story(settlement))
            self._dialogue.script(answered, scripts.WAIT, keys, *proof, milliseconds, *fields, failed=refused)
        else:
            keys_ = (self._keys.stream,)
            self._dialogue.script(answered, scripts.TRY_AGAIN, keys_, *proof, claim.count + 1, failed=refused)

    def _story(self, settlement: Settlement) -> dict[str, Any]:
        """Why, where, when and after how many tries: fields of their own next to the untouched others."""
        delivery: Delivery = settlement.delivery
        claim: Claim = delivery.handle
        facts = failed(delivery, settlement.verdict.reason, self._tag, self._milliseconds())
        first = min(facts[FIRST], claim.failed or facts[FIRST])
        return {**facts, FIRST: first, ORIGIN: delivery.origin["id"], GROUP: self._group}

    def _milliseconds(self) -> int:
        return int(self._clock() * 1000)

    def _answered(self, settlement: Settlement, answer: Answer) -> None:
        claim: Claim = settlement.delivery.handle
        if self._asked.pop(claim.id, None) is None:
            return  # left meanwhile
        settlement.fate = Fate.DONE if answer == DONE else Fate.STALE
        self._final.append(settlement)
        if self._held.get(claim.id) is claim:
            del self._held[claim.id]
        if answer != DONE:
            return
        verdict = settlement.verdict
        if verdict.action is not Action.DEAD_LETTER:
            if verdict.delay:
                self.waits(verdict.delay)
            else:
                claim.failed = claim.failed or self._milliseconds()
                self.again(claim)

    def _was_refused(self, settlement: Settlement, error: Exception) -> None:
        """Keep it for later, if that can help; anything else ends the connection."""
        word = word_of(error)
        if is_gone(error):
            self._answered(settlement, 0)
            return
        if word not in (OOM, WRONG_TYPE) and "WRONGTYPE" not in str(error):
            raise self._dialogue.end(error)
        now = monotonic()
        self._refused.append(settlement)
        self._retry_at = now + LATER
        if now - self._told_at >= TELL:
            self._told_at = now
            self._tell_of_refusal(word == OOM)

    def _tell_of_refusal(self, out_of_memory: bool) -> None:
        if out_of_memory:
            event, why = (
                OUT_OF_MEMORY,
                "the server is out of memory (maxmemory): give it more, or delete something",
            )
        else:
            event = REFUSED
            why = f"{self._keys.dead_letters} is no stream, or {self._keys.waiting} no sorted set: rename it"
        text = f"a verdict cannot be carried out, and is tried again; the entry stays pending: {why}"
        self._notices.append(Notice(event, logging.ERROR, text, {"waiting": len(self._refused)}))
