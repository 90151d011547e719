"""What chronicle prints for the operator: error lines, warnings, notes. All on stderr.

Rule 1: everything printed here is redacted and has no control characters in it (Z4, Z10).
Rule 2: one problem is one line; the remedy is the next.
Rule 3: nothing waits for a reader of stderr; everything goes through one stream, in order.
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
