"""The one place where lines leave: results on stdout; error lines, warnings and notes on stderr.

Rule 1 (Z10): no line has control characters in it, wherever its words come from.
Rule 2 (Z4): what goes to stderr is redacted and capped, too.
Rule 3: one problem is one line; the remedy is the next.
Rule 4: nothing waits for a reader of stderr; everything goes there through one stream, in order.
"""

from __future__ import annotations

import atexit
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from chronicle.telemetry.safe_stream import SafeStream


@cache
def stderr() -> SafeStream:
    """The one stream to stderr; the same even while a live view has replaced `sys.stderr`."""
    from chronicle.telemetry.safe_stream import SafeStream

    sink = SafeStream(sys.stderr)
    atexit.register(sink.finish)
    return sink


def say(*lines: str) -> None:
    """Lines of a command's result, on stdout."""
    from chronicle.telemetry.redaction import clean

    for line in lines:
        click.echo(clean(line))


def data(json: bytes) -> None:
    """A JSON line of a command's result, on stdout: the same data, with control characters escaped."""
    from chronicle.telemetry.redaction import clean_json

    click.echo(clean_json(json.decode()).encode())  # bytes: JSON is UTF-8, whatever the terminal's locale is


def problem(text: str, remedy: str = "") -> None:
    """One red line about what is wrong, and one about what to do."""
    _say(f"chronicle: {text}", "red")
    if remedy:
        _say(f"  remedy: {remedy}")


def warn(*texts: str) -> None:
    """One yellow line for each thing the operator should know that does not stop the command."""
    for text in texts:
        _say(f"chronicle: warning: {text}", "yellow")


def note(text: str) -> None:
    """A line of information besides the actual output."""
    if text:
        _say(f"chronicle: {text}")


def begin_line() -> None:
    """Leave the line that something else has begun at a terminal."""
    if stderr().is_terminal:
        stderr().write(b"\n")


def last_words(text: str) -> None:
    """Printed before a second signal ends the process; a live view or progress bar has hidden the cursor."""
    if stderr().is_terminal:
        stderr().write(b"\x1b[?25h\n")
    note(f"second signal: {text}")
    stderr().finish()


def trace(text: str) -> None:
    """A traceback, already masked, line by line."""
    for line in text.rstrip().splitlines():
        _say(line)


def _say(text: str, color: str | None = None) -> None:
    # Imported here: `chronicle --help` prints nothing of this kind and should not pay for it.
    from chronicle.telemetry.redaction import one_line

    sink = stderr()
    line = one_line(text)
    if color and sink.is_terminal and not os.environ.get("NO_COLOR"):
        line = click.style(line, fg=color)
    sink.write(f"{line}\n".encode("utf-8", "backslashreplace"))
