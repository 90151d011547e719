"""Log records from other libraries, turned into chronicle's own lines.

Rule 1: no record may raise, print by itself, or contain a secret, an address or a telephone number.
Rule 2: asyncio quotes the exceptions of tasks that were never awaited, with their texts; it is unknown which
        message they are about, so only their places and types are logged.
"""

from __future__ import annotations

import logging

from chronicle.telemetry import events
from chronicle.telemetry.events import Observer
from chronicle.telemetry.redaction import mask, trace_of

_LONGEST = 2_000


class LoggingBridge(logging.Handler):
    """A handler that passes what libraries and syncers log to an observer."""

    def __init__(self, observer: Observer) -> None:
        super().__init__()
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        try:
            text = record.getMessage()
            if record.name == "asyncio":
                text = (
                    text.partition("\n")[0] if error is None else f"asyncio: {type(error).__name__} in a task"
                )
            facts = {"logger": record.name}
            if error is not None:
                facts["trace"] = trace_of(error, None)
            self._observer.event(events.LOG, record.levelno, mask(text, None, _LONGEST), **facts)
        except Exception as failure:
            # A record whose arguments do not fit its text is its author's bug and must not stop a consumer.
            self._observer.event(
                events.LOG,
                logging.WARNING,
                f"a log record could not be written: {type(failure).__name__}",
                logger=record.name,
            )
