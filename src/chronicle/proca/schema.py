"""Which messages of a proca server are understood (R-004-17)."""

from __future__ import annotations

import re
from typing import Any, Final

from chronicle.errors import InvalidMessage

ACTION: Final = "proca:action:2"
EVENT: Final = "proca:event:2"

# What may be repeated in an error: the shape of a schema's name, which cannot be a person's name.
_HARMLESS: Final = re.compile(r"[a-z]{1,12}:[a-z]{1,12}:[0-9]{1,2}")


def schema_of(message: dict[str, Any]) -> str:
    """The schema the message names, if it is one of the two; else InvalidMessage (R-004-18)."""
    schema = message.get("schema")
    if schema == ACTION:
        return ACTION
    if schema == EVENT:
        return EVENT
    if schema is None:
        raise InvalidMessage(
            f"the message names no schema; {ACTION} and {EVENT} are understood, and --schema json takes any"
        )
    named = f" {schema}" if isinstance(schema, str) and _HARMLESS.fullmatch(schema) else ""
    raise InvalidMessage(f"unknown schema{named}; {ACTION} and {EVENT} are understood")
