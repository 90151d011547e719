"""Personal data that reaches the syncer sealed: said once with what to do, and how often at the end.

Each of these messages is in its own line with a note, but no warning: a thousand would hide the one that says
what to do.
"""

from __future__ import annotations

from typing import Any, Final

from chronicle.core.settlement import Settlement
from chronicle.telemetry.trace_context import trace_facts

EVENT: Final = "keys.sealed_passed_on"
REMEDY: Final = "name a key store that opens it with --keys FILE, or refuse them with --require-decryption"


def warning(first: Settlement) -> tuple[str, dict[str, Any]]:
    """The text about the first one, and what names it."""
    text = (
        f"{'; '.join(first.notes)}. The syncer gets such messages as they are; {REMEDY}. This is said once."
    )
    return text, {"action_id": first.action_id, **trace_facts(first.delivery)}


def total(sealed: int) -> str:
    """How often it happened, in words; empty if it did not."""
    return f"{sealed:,} passed to the syncer with personal data left sealed, see --keys" if sealed else ""
