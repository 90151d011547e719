"""Log records from other libraries, turned into chronicle's own lines.

Rule 1: no record may raise, print by itself, or contain a secret, an address or a telephone number.
Rule 2: a record names the message in work where it was written. Whether it is about that one is unknown, so
        the text of an exception that is logged with its traceback is withheld wherever the record quotes it.
Rule 3: asyncio quotes the arguments and exceptions of tasks: of its records only the fixed words are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from chronicle.telemetry import events
from chronicle.telemetry.events import Observer
from chronicle.telemetry.redaction import mask, name_of, reason_of, trace_of
from chronicle.telemetry.trace_context import current_facts

_LONGEST = 2_000


class LoggingBridge(logging.Handler):
    """A handler that passes what libraries and syncers log to an observer."""

    def __init__(self, observer: Observer, least: Callable[[str], int] = lambda _: logging.NOTSET) -> None:
        """`least` is the lowest level that is passed on, by the name of a logger."""
        super().__init__()
        self._observer = observer
        self._least = least

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < self._least(record.name):
            return
        error = record.exc_info[1] if record.exc_info else None
        try:
            text = _of_asyncio(record, error) if record.name == "asyncio" else _without(error, record)
            facts = {"logger": record.name, **current_facts()}
            if error is not None:
                facts["trace"] = trace_of(error, None)
            self._observer.event(events.LOG, record.levelno, mask(text, None, _LONGEST), **facts)
        except Exception as failure:
            # A record whose arguments do not fit its text is its author's bug and must not stop a consumer.
            self._observer.event(
                events.LOG,
                logging.WARNING,
                f"a log record could not be written: {name_of(type(failure))}",
                logger=record.name,
            )


def _of_asyncio(record: logging.LogRecord, error: BaseException | None) -> str:
    if error is not None:
        return f"asyncio: {name_of(type(error))} in a task"
    return str(record.msg).partition("\n")[0]


def _without(error: BaseException | None, record: logging.LogRecord) -> str:
    """What a record says, without the text of the error it is about."""
    text = record.getMessage()
    quoted = "" if error is None else str(error)
    return text.replace(quoted, reason_of(error, None)) if error is not None and quoted else text
