"""Whether the other side is down, by how messages fail. Decides; reads no clock and knows no message.

Rule 1: so many different messages in a row that fail alike are an outage. Alike is the same reason, numbers
        aside, or that each asked for another try. A success ends the row, and so does another reason, with
        which the next row begins. What says nothing about the other side (bad input, a dead letter or a drop
        that the syncer asked for) is passed over.
Rule 2: as long as the row could become an outage, what failed in it waits for its verdict; in an outage
        nothing that failed was counted as a try. So the messages are not to blame for it (intake.py).
Rule 3: once on, the brake stays on until a message succeeds; failures of any kind keep it on. The pauses
        between the tries grow.
Rule 4: it is hopeless after five minutes, for a run that should end by itself and has no other limit.
"""

from __future__ import annotations

import re
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.outcome import Action, Asked, Failed
from chronicle.core.settlement import Settlement
from chronicle.errors import DeadLetter, Drop, Retry

PAUSES: Final = Backoff(initial=1.0, maximum=60.0)
HOPELESS: Final = 10  # failed tries, which take five minutes
ANOTHER_TRY: Final = "another try was asked for"
_NUMBERED: Final = re.compile(r"\w*\d\w*")  # ids, dates, ports: what differs from message to message


def kind_of(settlement: Settlement) -> str | None:
    """What makes two failures alike; None if this is none, or says nothing about the other side."""
    outcome = settlement.outcome
    if settlement.verdict.action not in (Action.REQUEUE, Action.RETRY, Action.DEAD_LETTER):
        return None  # whoever acknowledges failures does not want to wait for them
    if isinstance(outcome, Failed):
        return _NUMBERED.sub("#", outcome.reason)
    if isinstance(outcome, Asked) and not isinstance(outcome.ask, DeadLetter | Drop):
        return ANOTHER_TRY if isinstance(outcome.ask, Retry) else _NUMBERED.sub("#", outcome.reason)
    return None


class Brake:
    """The row of failures, and whether intake pauses because of it."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many make an outage; 0: nothing ever does."""
        self._limit = limit
        self._kind = ""
        self._row: set[int] = set()
        self.engaged = False
        self.probes = 0  # that failed since it is on
        self.due = 0.0  # when the next message may be tried

    @property
    def row(self) -> int:
        """How many different ones have failed alike."""
        return len(self._row)

    @property
    def is_hopeless(self) -> bool:
        return self.engaged and self.probes >= HOPELESS

    def continues(self, kind: str) -> bool:
        """Whether a failure of this kind belongs to the row."""
        return not self._row or kind == self._kind

    def failed(self, message: int, kind: str, now: float) -> bool:
        """A message has failed; whether that put the brake on."""
        if self.engaged or not self._limit:
            return False
        if not self.continues(kind):
            self._row.clear()
        self._kind = kind
        self._row.add(message)
        self.engaged = len(self._row) >= self._limit
        self.probes = 0
        self.due = now + PAUSES.ceiling(1)
        return self.engaged

    def probe_failed(self, now: float) -> float:
        """A message that was tried on the brake has failed; how long it is until the next."""
        self.probes += 1
        pause = PAUSES.ceiling(self.probes + 1)
        self.due = now + pause
        return pause

    def succeeded(self) -> bool:
        """A message has succeeded; whether that took the brake off."""
        self._row.clear()
        released, self.engaged = self.engaged, False
        return released
