"""What `consume` finds out about dead letters before the first message (RB8), and how it reports it.

Rule: a queue known to lose messages is refused unless the operator allows it; if it is not known, every start
logs a warning.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from chronicle.errors import SettingError
from chronicle.telemetry import events
from chronicle.telemetry.events import Observer
from chronicle.transports.broker import DeadLetterCheck, Keeping
from chronicle.transports.seam import Connector


@dataclass(frozen=True, slots=True)
class Remark:
    """A line for the log."""

    event: str
    level: int
    text: str

    def tell(self, observer: Observer, queue: str) -> None:
        observer.event(self.event, self.level, self.text, queue=queue)


def dead_letters(
    check: DeadLetterCheck, connector: Connector, management_url: str | None, *, allow_drop: bool
) -> Remark:
    """Find out whether the broker would keep this queue's dead letters; SettingError if it would not."""
    not_asked = f"unknown whether this queue's dead letters are kept: {check.not_asked}"
    if connector.declare is not None:
        from chronicle.core.topology import Disabled  # only with --declare

        if isinstance(connector.declare.dead_letter, Disabled):
            return _vanishing("--no-dead-letter was given", check, allow_drop)
        return Remark(
            events.DEAD_LETTERS_KEPT, logging.INFO, "dead letters are kept: the queue is declared that way"
        )
    if not management_url:
        return Remark(events.DEAD_LETTERS_UNKNOWN, logging.WARNING, not_asked)
    prospect = check.ask(connector, management_url)
    match prospect.keeping:
        case Keeping.KEPT:
            return Remark(events.DEAD_LETTERS_KEPT, logging.INFO, f"dead letters are kept {prospect.why}")
        case Keeping.VANISHES:
            return _vanishing(prospect.why, check, allow_drop)
        case Keeping.UNKNOWN:
            text = f"unknown whether dead letters are kept: {prospect.why}. {not_asked}"
            return Remark(events.DEAD_LETTERS_UNKNOWN, logging.WARNING, text)


def _vanishing(why: str, check: DeadLetterCheck, allow_drop: bool) -> Remark:
    if not allow_drop:
        raise SettingError(f"the broker would delete failed messages: {why}", check.remedy)
    text = f"the broker deletes failed messages: {why}"
    return Remark(events.DEAD_LETTERS_VANISH, logging.WARNING, text)
