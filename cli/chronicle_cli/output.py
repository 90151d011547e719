"""Where a run's output goes; the only module that configures logging.

Rule 1: a terminal gets the live view or short lines, everything else JSON lines.
Rule 2 (Z4): whatever Python prints by itself (uncaught errors, threads that died, warnings) goes the same
        way, masked and without local variables, from before the syncer's module is imported. asyncio uses its
        logger, so it does too.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping

from chronicle.telemetry import events
from chronicle.telemetry.events import Observer
from chronicle.telemetry.formats import JsonLog, PrettyLog
from chronicle.telemetry.logging_bridge import LoggingBridge
from chronicle.telemetry.redaction import name_of, trace_of
from chronicle.telemetry.safe_stream import SafeStream
from chronicle_cli.log_levels import LogLevels
from chronicle_cli.log_mode import is_json
from chronicle_cli.settings import Output


def make_log(
    output: Output, sink: SafeStream, always: Mapping[str, str], *, environ: Mapping[str, str] = os.environ
) -> JsonLog | PrettyLog:
    """Log lines for these options and this stream; `always` is in every JSON line."""
    level = output.log_levels.own
    if logs_json(output, sink):
        return JsonLog(sink, level, always)
    return PrettyLog(sink, level, color=_has_colour(sink, environ))


def make_observer(
    output: Output,
    sink: SafeStream,
    title: str,
    always: Mapping[str, str],
    *,
    ends: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Observer:
    """Log lines, or the live view with this title; `ends` when the run is to empty the queue."""
    if not shows_live(output, sink, environ):
        return make_log(output, sink, always, environ=environ)
    # rich takes a tenth of a second to import: only those who see it should pay.
    from chronicle_cli.live import make_live_view

    color = _has_colour(sink, environ)
    return make_live_view(sink, output.log_levels.own, title, color=color, ends=ends)


def logs_json(output: Output, sink: SafeStream) -> bool:
    """Whether every line is JSON."""
    return is_json(output.log_format, live=bool(output.live), terminal=sink.is_terminal)


def shows_live(output: Output, sink: SafeStream, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a live view, and no lines about progress are needed."""
    fit = sink.is_terminal and environ.get("TERM") != "dumb"
    return fit and output.live is not False and not logs_json(output, sink)


def _has_colour(sink: SafeStream, environ: Mapping[str, str]) -> bool:
    return sink.is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def configure_logging(observer: Observer, levels: LogLevels, packages: Collection[str] = ()) -> None:
    """Send every log record and every uncaught error of this process to the observer.

    `packages` are the syncer's own, which log as much as chronicle does.
    """
    logging.getLogger().handlers[:] = [LoggingBridge(observer, levels.least(packages))]
    levels.apply()
    logging.captureWarnings(True)
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
