"""The names of events and the page that lists them; what they say of a delivery."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Settlement
from chronicle.telemetry import events

PAGE = Path(__file__).parents[3] / "docs" / "running.md"


def test_the_page_lists_every_event() -> None:
    """R-000-42 and style 8: who reads the log can look up every line."""
    listed = listed_events(PAGE.read_text())
    names = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert "message.settle_failed" in names
    assert names - {events.LOG} - listed == set()  # LOG carries the lines of other libraries


@pytest.mark.parametrize("place", ["routing_key", "channel"])
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("register.forests", "register.forests"),
        ("user.1234567890.updated", "user.1234567890.updated"),
        ("contact.updated.anna.smith@example.org", "‹email›"),
        ("user:anna@example.org:mails", "user:‹email›:mails"),
        ("+4915112345678", "‹phone›"),
    ],
)
def test_D_21_where_a_message_was_sent_may_name_a_person(place: str, words: str, shown: str) -> None:
    """A producer words it as it likes; ids are no names."""
    origin = {place: words, "id": "1700000000000-0"}
    given = Delivery(b"{}", queue="q", transport="t", origin=origin)
    _, _, facts = events.verdict_facts(Settlement(given, Synced(), Verdict(Action.ACK, "synced")))
    assert (facts[place], facts["id"]) == (shown, "1700000000000-0")


def listed_events(page: str) -> set[str]:
    """The first cells of the table; `.ready` behind `consumer.starting` shares its first word."""
    found: set[str] = set()
    for row in page.splitlines():
        cell = row.split("|")[1] if row.startswith("| `") else ""
        first = ""
        for name in (part.strip(" `") for part in cell.split(",")):
            first = first or name
            if name.startswith("."):
                name = first.partition(".")[0] + name
            elif name.startswith("_"):
                name = first.rpartition("_")[0] + name
            found.add(name)
    return found
