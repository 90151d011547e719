"""What a program is told about a run: every event as one value, to a function of its own or to a logger.

Rule 1 (D-21): the same names, levels and facts as in the log of the command: ids, sizes and reasons.
Rule 2: without a function it goes to the logger `chronicle`, which the program configures, or does not.
        Nobody is told of messages that were simply acknowledged, unless they listen.
Rule 3: what such a function raises ends nothing. It is called on the run's own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from chronicle.core.settlement import Settlement
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.redaction import name_of

logger: Final = logging.getLogger("chronicle")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run, with its facts; `level` is one of `logging`'s."""

    name: str
    level: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def log(event: Event) -> None:
    """Where events go that nobody asked for: the name and the facts are in the record, as `event`."""
    if logger.isEnabledFor(event.level):
        logger.log(event.level, "%s: %s", event.name, event.text, extra={"event": event})


class Reporter:
    """An observer that makes events of what it sees."""

    def __init__(
        self,
        on_event: Callable[[Event], None] | None,
        labels: Mapping[str, str],
        on_ready: Callable[[], None] = lambda: None,
        everyday: frozenset[str] = frozenset(),
    ) -> None:
        """Events that are `everyday` here are told as information, whatever they are elsewhere."""
        self._tell = on_event or log
        self._listens = on_event is not None
        self._labels = labels
        self._on_ready = on_ready
        self._everyday = everyday

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self._say(Event(name, level, text, {**self._labels, **facts}))
        if name == events.READY:
            self._on_ready()

    def settled(self, batch: Sequence[Settlement]) -> None:
        quiet = not self._listens and not logger.isEnabledFor(logging.INFO)
        for settlement in batch:
            if quiet and events.is_plain_ack(settlement):
                continue
            name, level, facts = events.verdict_facts(settlement)
            self._say(Event(name, level, settlement.verdict.reason, {**self._labels, **facts}))

    def tick(self, counters: Counters) -> None: ...

    def close(self, counters: Counters) -> None: ...

    def _say(self, event: Event) -> None:
        if event.name in self._everyday:
            event = replace(event, level=min(event.level, logging.INFO))
        try:
            self._tell(event)
        except Exception as error:
            # Not its text and not its traceback: they may quote what it was told.
            logger.error("on_event raised %s for %s", name_of(type(error)), event.name)  # noqa: TRY400
