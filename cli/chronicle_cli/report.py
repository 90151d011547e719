"""The one place where lines leave: results on stdout; error lines, warnings and notes on stderr.

Rule 1 (Z10): no line has control characters in it, wherever its words come from.
Rule 2 (Z4): what goes to stderr is redacted and capped, too.
Rule 3: one problem is one line; the remedy is the next. Where a run logs JSON, both are fields of one line,
        and every other line is JSON as well.
Rule 4: nothing waits for a reader of stderr; everything goes there through one stream, in order.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from chronicle.telemetry.formats import JsonLog
    from chronicle.telemetry.safe_stream import SafeStream

_json: JsonLog | None = None  # what speaks for a command whose log is JSON


@cache
def stderr() -> SafeStream:
    """The one stream to stderr; the same even while a live view has replaced `sys.stderr`."""
    from chronicle.telemetry.safe_stream import SafeStream

    sink = SafeStream(sys.stderr)
    atexit.register(sink.finish)
    return sink


def speak_json(yes: bool, always: Mapping[str, str] | None = None) -> None:
    """Say everything on stderr as JSON lines from now on, each with the facts of `always`; or no longer."""
    global _json
    if not yes:
        _json = None
        return
    from chronicle.telemetry.formats import JsonLog

    _json = JsonLog(stderr(), logging.INFO, always or {})


def say(*lines: str) -> None:
    """Lines of a command's result, on stdout."""
    from chronicle.telemetry.redaction import clean

    for line in lines:
        click.echo(clean(line))


def done(line: str) -> None:
    """What a command has done, on stdout; if that cannot be written, on stderr: it was done all the same."""
    try:
        say(line)
    except (OSError, ValueError):  # ValueError: a syncer has closed it
        note(line)
        raise


def ask(question: str) -> None:
    """A question at a terminal; the answer is typed behind it."""
    from chronicle.telemetry.redaction import clean

    click.echo(f"{clean(question)} ", nl=False, err=True)


def data(json: bytes) -> None:
    """A JSON line of a command's result, on stdout: the same data, with control characters escaped."""
    from chronicle.telemetry.redaction import clean_json

    click.echo(clean_json(json.decode()).encode())  # bytes: JSON is UTF-8, whatever the terminal's locale is


def problem(text: str, remedy: str = "", *, trace: str = "", **facts: int) -> None:
    """One red line about what is wrong, and one about what to do; before it a traceback, already masked."""
    if _json is not None:
        from chronicle.telemetry import events

        told = {name: words for name, words in (("remedy", remedy), ("trace", trace)) if words}
        _json.event(events.COMMAND_FAILED, logging.ERROR, text, **told, **facts)
        return
    for line in trace.rstrip().splitlines():
        _say(line)
    _say(f"chronicle: {text}", "red")
    if remedy:
        _say(f"  remedy: {remedy}")


def warn(*texts: str) -> None:
    """One yellow line for each thing the operator should know that does not stop the command."""
    for text in texts:
        if _json is not None:
            from chronicle.telemetry import events

            _json.event(events.COMMAND_WARNING, logging.WARNING, text)
        else:
            _say(f"chronicle: warning: {text}", "yellow")


def note(text: str) -> None:
    """A line of information besides the actual output."""
    if text and _json is not None:
        from chronicle.telemetry import events

        _json.event(events.COMMAND_NOTE, logging.INFO, text)
    elif text:
        _say(f"chronicle: {text}")


def begin_line() -> None:
    """Leave the line that something else has begun at a terminal."""
    if stderr().is_terminal and _json is None:
        stderr().write(b"\n")


def last_words(text: str) -> None:
    """Printed before a second signal ends the process; a live view or progress bar has hidden the cursor."""
    if stderr().is_terminal and _json is None:
        stderr().write(b"\x1b[?25h\n")
    if _json is not None:
        warn(f"second signal: {text}")
    else:
        note(f"second signal: {text}")
    stderr().finish()


def _say(text: str, color: str | None = None) -> None:
    # Imported here: `chronicle --help` prints nothing of this kind and should not pay for it.
    from chronicle.telemetry.redaction import one_line

    sink = stderr()
    line = one_line(text)
    if color and sink.is_terminal and not os.environ.get("NO_COLOR"):
        line = click.style(line, fg=color)
    sink.write(f"{line}\n".encode("utf-8", "backslashreplace"))
