"""What a person agreed to: questions a syncer asks of a proca message before it passes a contact on.

Only an explicit yes counts. Events keep the answers under `supporter`; an older message (`proca:action:1`)
has none of them.
"""

from __future__ import annotations

from typing import Any

from chronicle_syncers._message import Message, lookup


def has_consent(message: Message) -> bool:
    """The person let this organisation have the contact. Always False in an event, which does not say."""
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
