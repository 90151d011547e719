"""Dead letters of a reader without a group.

Rule (S6): a dead letter is final when the server has confirmed it, and only then the position may move over
        its entry. If the answer is lost, it is asked again, with the same fields, by a script that looks
        first whether it is there. What the server does not take now is asked again later (refusals.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import time

from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.transports.redis import scripts
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.entries import MOST_FIELDS, described
from chronicle.transports.redis.keys import Keys
from chronicle.transports.redis.refusals import Refusals


class Letters:
    """Dead letters on their way."""

    def __init__(
        self, keys: Keys, consumer: str, notices: deque[Notice], done: Callable[[Settlement], None]
    ) -> None:
        self._keys = keys
        self._consumer = consumer
        self._done = done
        self._refusals = Refusals(keys, notices)
        self._written: dict[bytes, list[bytes]] = {}  # the fields of each that is not confirmed
        self._asked: set[bytes] = set()  # on this connection, or refused and waiting
        self._doubtful: set[bytes] = set()  # asked on an earlier connection, and never answered

    def begin(self, dialogue: Dialogue) -> None:
        """There is a new connection: the engine sends again what had no answer on the old one."""
        self._dialogue = dialogue
        self._doubtful |= self._asked
        self._asked.clear()
        self._refusals.clear()

    def add(self, settlement: Settlement) -> None:
        id_: bytes = settlement.delivery.handle.id
        if id_ in self._asked:
            return
        if id_ not in self._written:
            reason, now = settlement.verdict.reason, int(time() * 1000)
            self._written[id_] = described(
                settlement.delivery, reason, consumer=self._consumer, group="", now=now
            )
        self._asked.add(id_)
        self._ask(settlement)

    def give_up(self, id_: bytes) -> None:
        """It is not handled here."""
        self._written.pop(id_, None)
        self._asked.discard(id_)

    def plan(self, now: float) -> None:
        """Ask again for what was refused."""
        for settlement in self._refusals.due(now):
            if settlement.delivery.handle.id in self._asked:
                self._ask(settlement)

    def hurry(self) -> None:
        self._refusals.hurry()

    def clear(self) -> None:
        self._written.clear()
        self._asked.clear()
        self._doubtful.clear()
        self._refusals.clear()

    def _ask(self, settlement: Settlement) -> None:
        id_: bytes = settlement.delivery.handle.id
        fields = self._written[id_]

        def added(_answer: Answer) -> None:
            self._doubtful.discard(id_)
            if id_ in self._asked:  # not given up meanwhile
                self.give_up(id_)
                self._done(settlement)

        def refused(error: Exception) -> None:
            if not self._refusals.keep(settlement, error):
                raise self._dialogue.end(error)

        if len(fields) > 2 * MOST_FIELDS:  # more than a script can pass on
            self._dialogue.ask(added, "XADD", self._keys.dead_letters, "*", *fields, failed=refused)
        else:
            look_back = scripts.LOOK_BACK if id_ in self._doubtful else 0
            keys = (self._keys.dead_letters,)
            self._dialogue.script(added, scripts.ADD_ONCE, keys, look_back, *fields, failed=refused)
