"""Messages for the tests of the ready-made syncers; the person in them is a canary."""

from __future__ import annotations

from typing import Any, Final

CANARY: Final = "canary-person"


def action(number: int | None = 1001, **contact: Any) -> dict[str, Any]:
    """A delivered action; its person is the canary."""
    return {
        "schema": "proca:action:2",
        "stage": "deliver",
        "actionId": number,
        "action": {"actionType": "register", "createdAt": "2026-03-02T10:11:12Z", "customFields": {}},
        "campaign": {"name": "forests"},
        "org": {"name": "your_org"},
        "contact": {
            "email": f"{CANARY}@example.org",
            "firstName": CANARY,
            "lastName": "Wójcik",
            "country": "PL",
            "postcode": "00-950",
            **contact,
        },
        "privacy": {"withConsent": True, "optIn": True, "emailStatus": None},
    }


def event(number: int | None = 1001) -> dict[str, Any]:
    """What became of a person's e-mail address; newer ones carry the id of the action (proca.md §4)."""
    return {
        "schema": "proca:event:2",
        "eventType": "email_status",
        "actionId": number,
        "supporter": {
            "contact": {"email": f"{CANARY}@example.org"},
            "privacy": {"withConsent": False, "optIn": True, "emailStatus": "double_opt_in"},
        },
    }
