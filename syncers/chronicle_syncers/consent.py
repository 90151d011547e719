"""What a person agreed to: checks for a proca message before a syncer passes the contact on.

Only an explicit yes counts. Events have these fields under `supporter`; an older message (`proca:action:1`)
does not have them.
"""

from __future__ import annotations

from typing import Any

from chronicle_syncers._message import Message, lookup


def has_consent(message: Message) -> bool:
    """The person agreed to share the contact with this organisation; always False for an event."""
    return _privacy(message, "withConsent") is True


def opted_in(message: Message) -> bool:
    """The person also wants to hear from this organisation."""
    return has_consent(message) and _privacy(message, "optIn") is True


def double_opted_in(message: Message) -> bool:
    """The person confirmed it by e-mail; in an action or in an `email_status` event."""
    return bool(_privacy(message, "emailStatus") == "double_opt_in")


def _privacy(message: Message, name: str) -> Any:
    place = "privacy" if isinstance(lookup(message, "privacy"), dict) else "supporter.privacy"
    return lookup(message, f"{place}.{name}")
