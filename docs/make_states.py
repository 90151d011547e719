"""Generates docs/states.md from the transition tables: run `python docs/make_states.py` after a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from chronicle.core.machine import Table
from chronicle.transports.catalog import brokers

PAGE: Final = Path(__file__).with_name("states.md")
HEAD: Final = """\
# States

This page is generated from the tables in the records of the brokers by `docs/make_states.py`.
A test fails if it is out of date.

Events that do not change the state have no arrow. Every arrow is logged and counted.
"""


def tables() -> dict[str, Table]:
    """The tables of all brokers, by title."""
    return {title: table for broker in brokers() for title, table in broker.states().items()}


def page(tables: Mapping[str, Table]) -> str:
    """The whole page, one diagram per table."""
    return "\n".join([HEAD, *(line for name, table in tables.items() for line in section(name, table))])


def section(name: str, table: Table) -> Iterator[str]:
    yield f"## {name}\n\n```mermaid\nstateDiagram-v2"
    yield f"    [*] --> {start_of(table)}"
    for (before, event), after in table.items():
        if before != after:
            yield f"    {before} --> {after}: {event}"
    yield "```\n"


def start_of(table: Table) -> str:
    """Where a consumer begins, and where it ends: every table lists it first."""
    return next(iter(table))[0]


if __name__ == "__main__":
    PAGE.write_text(page(tables()))
