"""Where a run's output goes; the only module that configures logging.

Rule 1: a terminal gets the live view or short lines, everything else JSON lines.
Rule 2 (Z4): whatever Python prints by itself (uncaught errors, threads that died, warnings) goes the same
        way, masked and without local variables. asyncio uses its logger, so it does too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping

from chronicle.telemetry import events
from chronicle.telemetry.events import Observer
from chronicle.telemetry.formats import JsonLog, PrettyLog
from chronicle.telemetry.logging_bridge import LoggingBridge
from chronicle.telemetry.redaction import name_of, trace_of
from chronicle.telemetry.safe_stream import SafeStream
from chronicle_cli.client_logs import quiet_clients, spare_bodies
from chronicle_cli.settings import LogFormat, LogLevel


def make_observer(
    log_format: LogFormat,
    log_level: LogLevel,
    live: bool | None,
    sink: SafeStream,
    queue: str,
    trigger: str,
    connector: str,
    labels: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Observer:
    """The observer for these options and this output.

    `trigger` is what runs (the syncer), `connector` where it listens; both are in every JSON line, and so are
    the `labels` of the transport.
    """
    level = number_of(log_level)
    terminal = sink.is_terminal
    if log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not terminal and not live):
        always = {**(labels or {}), "trigger": trigger, "connector": connector}
        return JsonLog(sink, level, always)
    color = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    if live is False or not terminal or environ.get("TERM") == "dumb":
        return PrettyLog(sink, level, color=color)
    # rich takes a tenth of a second to import: only those who see it should pay.
    from chronicle_cli.live import make_live_view

    return make_live_view(sink, level, f"{trigger} ← {queue} at {connector}", color=color)


def configure_logging(observer: Observer, log_level: LogLevel) -> None:
    """Send every log record and every uncaught error of this process to the observer."""
    level = number_of(log_level)
    root = logging.getLogger()
    root.handlers[:] = [LoggingBridge(observer)]
    root.setLevel(level)
    logging.captureWarnings(True)
    if level > logging.DEBUG:
        quiet_clients()
    else:
        spare_bodies()
    _catch_uncaught(observer)


def _catch_uncaught(observer: Observer) -> None:
    def tell(where: str, error: BaseException | None) -> None:
        if error is None or isinstance(error, SystemExit):
            return
        text = f"{name_of(type(error))} {where}"
        observer.event(events.CRASHED, logging.CRITICAL, text, trace=trace_of(error, None))

    sys.excepthook = lambda _kind, error, _trace: tell("ended the process", error)
    threading.excepthook = lambda args: tell("ended a thread", args.exc_value)
    sys.unraisablehook = lambda args: tell("could not be caught", args.exc_value)


def number_of(log_level: LogLevel) -> int:
    """The level as `logging` numbers it."""
    return logging.getLevelNamesMapping()[log_level.upper()]
