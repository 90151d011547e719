"""Recording during a run: the observer behind `consume --capture`.

Rule 1: a record is written when its message is finished, and only after the broker has carried out the
        verdict: acknowledged, dead-lettered or dropped. A message that comes back is not finished yet.
Rule 2: a capture that cannot be written ends the run with an error: messages in progress are settled as
        usual, no new ones are taken, and the log says how many records are missing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from chronicle.captures.file import CaptureFile
from chronicle.core.account import account_of, is_final
from chronicle.core.body import MAX_BODY
from chronicle.core.record import to_record
from chronicle.core.settlement import Settlement
from chronicle.core.words import many
from chronicle.engine.job import Ending, Objection
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer


class Recorder:
    """An observer that writes every finished message, and passes everything on."""

    def __init__(
        self,
        behind: Observer,
        file: CaptureFile,
        name: str,
        *,
        readable: int = MAX_BODY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Bodies up to `readable` bytes are in their records as text and JSON, too."""
        self._behind = behind
        self._file = file
        self._name = name
        self._readable = readable
        self._clock = clock
        self._stop: Callable[[str], None] = lambda _: None
        self.failed = False
        self.missing = 0  # settled, and not in the file

    def attach(self, stop: Callable[[str], None]) -> None:
        """How to end the run when the file cannot be written."""
        self._stop = stop

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self._behind.event(name, level, text, **facts)

    def settled(self, batch: Sequence[Settlement]) -> None:
        self._behind.settled(batch)
        ended = [settlement for settlement in batch if is_final(settlement)]
        unread = sum(bool(settlement.delivery.unread) for settlement in ended)
        if unread:  # a record without the body would pass for the message
            self.missing += unread
            ended = [settlement for settlement in ended if not settlement.delivery.unread]
        if not ended:
            return
        if self.failed:
            self.missing += len(ended)
            return
        now = int(self._clock() * 1000)
        try:
            self._file.write([record_of(settlement, now, self._readable) for settlement in ended])
        except OSError as error:
            self.missing += len(ended)
            self._fail(error)

    def objection(self, _ending: Ending) -> Objection | None:
        """The run has failed if the file could not be written."""
        return Objection("records are missing there") if self.failed else None

    def tick(self, counters: Counters) -> None:
        self._behind.tick(counters)

    def close(self, counters: Counters) -> None:
        try:
            if self.failed:
                self._file.sync()  # and no closing line: a reader must see that records are missing
            else:
                self._file.close()
        except OSError as error:
            self._fail(error)
        finally:
            self._file.abandon()
        if self.missing:
            text = f"{many(self.missing, 'message')} settled but missing from the capture {self._name}"
            self._behind.event(events.CAPTURE_FAILED, logging.ERROR, text, missing=self.missing)
        self._behind.close(counters)

    def _fail(self, error: OSError) -> None:
        if self.failed:
            return
        self.failed = True
        text = f"the capture {self._name} cannot be written: {error.strerror}"
        self._behind.event(events.CAPTURE_FAILED, logging.CRITICAL, text, captured=self._file.count)
        self._stop("the capture cannot be written")


def record_of(settlement: Settlement, now: int, readable: int = MAX_BODY) -> dict[str, Any]:
    """The delivery, and how it was handled."""
    return to_record(settlement.delivery, account_of(settlement, now), readable)
