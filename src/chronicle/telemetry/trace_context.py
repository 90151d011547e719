"""How a message's trace is named in the log.

Rule (D-21): a `traceparent` is hexadecimal, and shown. A correlation id may be a person's address or name: it
is shown if it looks like an id, which is one word with a digit in it, and masked as every text is; otherwise
it is withheld.
"""

from __future__ import annotations

import re
from typing import Any, Final

from chronicle.core.delivery import Delivery
from chronicle.core.in_work import IN_WORK
from chronicle.core.trace_headers import CORRELATION_ID, TRACEPARENT
from chronicle.telemetry.redaction import mask
from chronicle.telemetry.redaction.personal import WITHHELD

LONGEST: Final = 128
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", re.ASCII)
_WORD: Final = re.compile(r"(?=[^0-9]*[0-9])[!-~]+", re.ASCII)


def current_facts() -> dict[str, Any]:
    """What names the message in work here, in a line of the log that a syncer writes."""
    in_work = IN_WORK.get()
    if in_work is None:
        return {}
    delivery, action_id = in_work
    return {"action_id": action_id, **trace_facts(delivery)}


def trace_facts(delivery: Delivery) -> dict[str, str]:
    """What names a delivery's trace in a line of the log: its traceparent, else its correlation id."""
    if not delivery.may_name_trace():
        return {}
    if (traceparent := delivery.traceparent) is not None:
        return {TRACEPARENT: traceparent}
    if (correlation_id := delivery.correlation_id) is not None:
        return {CORRELATION_ID: shown_id(correlation_id)}
    return {}


def shown_id(text: str) -> str:
    """What may be shown of an id that a producer chose."""
    if _UUID.fullmatch(text):
        return text
    return mask(text, None, LONGEST) if _WORD.fullmatch(text) else WITHHELD
