"""How chronicle speaks to the person who ran it: error lines, warnings, notes. All on stderr.

Rule 1: everything printed here is redacted and has no control characters in it (Z4, Z10).
Rule 2: one problem is one line; the remedy is the next.
"""

from __future__ import annotations

import os
import sys

import click


def problem(text: str, remedy: str = "") -> None:
    """One red line about what is wrong, and one about what to do."""
    _say(f"chronicle: {text}", "red")
    if remedy:
        _say(f"  remedy: {remedy}")


def warn(*texts: str) -> None:
    """One yellow line for each thing the operator should know but that stops nothing."""
    for text in texts:
        _say(f"chronicle: warning: {text}", "yellow")


def note(text: str) -> None:
    """A line beside the output proper."""
    if text:
        _say(f"chronicle: {text}")


def last_words(text: str) -> None:
    """What is said before a second signal ends the process; a live view or a bar had hidden the cursor."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")
    note(f"second signal: {text}")


def trace(text: str) -> None:
    """A traceback that was already masked, line by line."""
    for line in text.rstrip().splitlines():
        _say(line)


def _say(text: str, color: str | None = None) -> None:
    # Imported here: `chronicle --help` says nothing of this kind and should not pay for it.
    from chronicle.telemetry.redaction import clean, redact

    line = clean(redact(text))
    try:
        click.secho(line, err=True, fg=color, color=False if os.environ.get("NO_COLOR") else None)
    except (OSError, ValueError):
        # Nobody listens on stderr any more; the exit code still tells.
        return
