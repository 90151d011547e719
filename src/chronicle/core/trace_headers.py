"""Which trace or conversation a message belongs to, as its producer wrote it.

Rule 1: a producer can write anything. A `traceparent` counts only if it is one (W3C Trace Context): 55
        characters, hexadecimal, so it can be shown as it is. Of a later version the same 55 are taken.
Rule 2: a correlation id is any text; what may be shown of it is decided in telemetry/trace_context.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
CORRELATION_ID: Final = "correlation_id"
# What to look for in an envelope that is not decoded yet.
RAW_TRACEPARENT: Final = TRACEPARENT.encode()
RAW_CORRELATION_ID: Final = CORRELATION_ID.encode()

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_LENGTH: Final = 55


def traceparent_in(headers: Mapping[str, Any]) -> str | None:
    """The trace these headers name, if they name a valid one."""
    value = headers.get(TRACEPARENT)
    if not isinstance(value, str) or not _TRACEPARENT.match(value):
        return None
    longer = value[_LENGTH : _LENGTH + 1]
    return value[:_LENGTH] if not longer or (longer == "-" and value[:2] != "00") else None


def correlation_id_in(headers: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    """The conversation a message belongs to: its property of that name, or else its header."""
    for place in (properties, headers):
        value = place.get(CORRELATION_ID)
        if isinstance(value, str) and value:
            return value
    return None
