"""What identifies a message: its action id and its schema, as far as they can be read."""

from __future__ import annotations

from typing import Any

from chronicle.core.body import MAX_BODY, parse
from chronicle.errors import InvalidMessage


def action_id_of(message: dict[str, Any]) -> int | None:
    """The action's id; anything but a whole number is not an id, and might be a person's name."""
    action_id = message.get("actionId")
    return action_id if type(action_id) is int else None


def names_in(body: bytes, max_body: int = MAX_BODY) -> tuple[int | None, str]:
    """Action id and schema of an unparsed body; one that is too large or cannot be read has neither."""
    try:
        message = parse(body, max_body)
    except InvalidMessage:
        return None, ""
    if not isinstance(message, dict):
        return None, ""
    schema = message.get("schema")
    return action_id_of(message), schema if isinstance(schema, str) else ""
