"""The names of events, and the page that lists them."""

from __future__ import annotations

from pathlib import Path

from chronicle.telemetry import events

PAGE = Path(__file__).parents[3] / "docs" / "running.md"


def test_the_page_lists_every_event() -> None:
    """R-000-42 and style 8: who reads the log can look up every line."""
    listed = listed_events(PAGE.read_text())
    names = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert "message.settle_failed" in names
    assert names - {events.LOG} - listed == set()  # LOG carries the lines of other libraries


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
