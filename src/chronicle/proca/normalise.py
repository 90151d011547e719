"""The ids of a message, copied to where they belong (R-004-19 to 23), and its opened contact merged in.

Rule 1: the message is changed in place. It was parsed for one syncer a moment ago; what is captured,
        retried or dead-lettered is the delivery's body, which never changes (D-21).
Rule 2 (D-18): an absent or null id never overwrites one that is there.
"""

from __future__ import annotations

from typing import Any, Final

from chronicle.errors import InvalidMessage

IDS: Final = (
    ("campaignId", "campaign"),
    ("actionId", "action"),
    ("orgId", "org"),
    ("actionPageId", "actionPage"),
)


def copy_ids(message: dict[str, Any]) -> None:
    """Give campaign, action, org and action page their ids; a missing object is created."""
    get = message.get
    for field, owner in IDS:
        identity = get(field)
        if identity is not None:
            value = get(owner)
            (value if type(value) is dict else child(message, owner))["id"] = identity


def merge_contact(holder: dict[str, Any], opened: dict[str, Any]) -> None:
    """Put opened personal data into the contact; what was sealed wins (R-004-25, R-004-26)."""
    child(holder, "contact").update(opened)


def child(holder: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of this name, created if it is missing or null."""
    value = holder.get(name)
    if value is None:
        value = holder[name] = {}
    elif not isinstance(value, dict):
        raise InvalidMessage(f"{name} is not an object")
    return value
