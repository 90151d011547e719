"""Reading a message without trusting it: any field may be missing or have the wrong type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import orjson

from chronicle import DeadLetter
from chronicle.errors import SettingError

Message: TypeAlias = Mapping[str, Any]

LARGEST_ID: Final = 2**63 - 1


def lookup(message: Message, path: str) -> Any:
    """The value at `a.b.c`, or None if there is none."""
    value: Any = message
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def is_sealed(message: Message) -> bool:
    """Whether its personal data is still sealed: there was no key for it, or no key store."""
    return lookup(message, "personalInfo") is not None and lookup(message, "contact.email") is None


def is_event(message: Message) -> bool:
    """Whether it is an event; an event may carry the id of an action, but it is not that action."""
    return str(lookup(message, "schema")).startswith("proca:event:")


def action_id(message: Message) -> int | None:
    """The id of the action in this message; None if it is something else."""
    value = lookup(message, "actionId")
    if is_event(message) or isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= LARGEST_ID else None


def as_json(message: Message, *, canonical: bool = False) -> bytes:
    """The message as one line of JSON; canonical means that keys are sorted."""
    if not isinstance(message, dict):
        raise SettingError(
            "this syncer takes messages that are JSON objects", "run it with --schema proca or --schema json"
        )
    try:
        return _dump(message, canonical)
    except (TypeError, ValueError, RecursionError):
        # Only a message that somebody changed on its way here: no second try would help.
        raise DeadLetter("the message cannot be written as JSON") from None


def as_text(value: Any) -> str | None:
    """A value for a cell or a column: text unchanged, everything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return _dump(value, canonical=False).decode()


def _dump(value: Any, canonical: bool) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if canonical else None)
    except TypeError:
        # Whole numbers beyond 64 bits are JSON, and orjson does not write them.
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=canonical
        )
        return text.encode()
