"""The transition tables of all brokers: what every table must offer, and the page drawn from them."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.machine import Table

DOCS: Final = Path(__file__).parents[3] / "docs"
DRAWING: Final = runpy.run_path(str(DOCS / "make_states.py"))
TABLES: Final[Mapping[str, Table]] = DRAWING["tables"]()
STOP: Final = "stop"
OPENING: Final = ("open", "backoff_expired")  # what leads to work
every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())


def states_of(table: Table) -> set[str]:
    return {before for before, _ in table} | set(table.values())


def start_of(table: Table) -> str:
    return str(DRAWING["start_of"](table))


def reachable(table: Table, start: str) -> set[str]:
    seen, new = {start}, {start}
    while new:
        new = {after for (before, _), after in table.items() if before in new} - seen
        seen |= new
    return seen


def test_the_page_is_drawn_from_the_tables() -> None:
    stale = "docs/states.md is stale: run python docs/make_states.py"
    assert (DOCS / "states.md").read_text() == DRAWING["page"](TABLES), stale


def test_the_page_has_every_arrow_and_no_other() -> None:
    drawn = [line.strip() for line in (DOCS / "states.md").read_text().splitlines() if " --> " in line]
    arrows = [
        f"{a} --> {b}: {event}" for table in TABLES.values() for (a, event), b in table.items() if a != b
    ]
    assert [line for line in drawn if not line.startswith("[*]")] == arrows


@every_table
def test_every_state_can_be_reached(table: Table) -> None:
    assert reachable(table, start_of(table)) == states_of(table)


@every_table
def test_every_state_but_the_last_can_be_stopped(table: Table) -> None:
    """D-10: a stop is possible in every state."""
    unstoppable = {state for state in states_of(table) if (state, STOP) not in table}
    assert unstoppable <= {start_of(table)}


@every_table
def test_every_state_leads_back_to_the_end(table: Table) -> None:
    """No dead ends: whatever happens, a consumer can still end in good order."""
    end = start_of(table)
    assert {state for state in states_of(table) if end not in reachable(table, state)} == set()


@every_table
def test_a_stop_never_leads_back_to_work(table: Table) -> None:
    """D-10: after a stop a consumer only ends, unless it is started again."""
    end = start_of(table)
    ending = {after for (_, event), after in table.items() if event == STOP}
    onward = {key: after for key, after in table.items() if key[0] != end}
    after_a_stop = set().union(*(reachable(onward, state) for state in ending))
    assert after_a_stop
    assert not any((state, event) in table for state in after_a_stop - {end} for event in OPENING)
