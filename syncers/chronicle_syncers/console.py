"""A syncer that prints each message on standard output, one line per message.

A line has the schema, the ids and the names that identify the message, and no personal data.

    CHRONICLE_CONSOLE_REVEAL    1 prints the whole message as JSON instead, personal data included
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, TextIO

from chronicle_syncers._message import Message, as_json, lookup
from chronicle_syncers._settings import flag

COLUMNS: Final = (
    ("actionId", "actionId"),
    ("actionType", "action.actionType"),
    ("eventType", "eventType"),
    ("campaign", "campaign.name"),
    ("org", "org.name"),
)
WIDEST: Final = 80


class Console:
    """Prints messages; it is thread-safe, so lines are never mixed."""

    def __init__(self, environ: Mapping[str, str] = os.environ, out: TextIO | None = None) -> None:
        self._reveal = flag(environ, "CHRONICLE_CONSOLE_REVEAL")
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> bool:
        line = printable(as_json(message).decode()) if self._reveal else summary(message)
        with self._lock:
            out = self._out or sys.stdout
            encoding = out.encoding or "utf-8"
            out.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            out.flush()
        return True


def summary(message: Message) -> str:
    """What identifies a message, without any personal data."""
    facts = [(name, lookup(message, path)) for name, path in COLUMNS]
    named = [f"{name}={_short(value)}" for name, value in facts if value is not None]
    return " ".join([_short(lookup(message, "schema") or "no-schema"), *named])


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, str | int) else f"<{type(value).__name__}>"
    return printable(text if len(text) <= WIDEST else text[: WIDEST - 1] + "…")


def printable(text: str) -> str:
    """The text with every character that could move a terminal's cursor escaped (Z10)."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


sync = Console
