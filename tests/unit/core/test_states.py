"""The transition tables: the arrows of the source documents, and what every table must offer."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.machine import Table
from chronicle.core.states import RABBIT, TABLES, Rabbit, RabbitEvent

DOCS: Final = Path(__file__).parents[3] / "docs"
DRAWING: Final = runpy.run_path(str(DOCS / "make_states.py"))
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


def test_the_states_are_those_of_the_document() -> None:
    """R-000-5."""
    assert states_of(RABBIT) == set(Rabbit)


@pytest.mark.parametrize(
    ("requirement", "before", "event", "after"),
    [
        ("R-000-6", Rabbit.CONNECTING, RabbitEvent.OPEN, Rabbit.DECLARING_QOS),
        ("R-000-7", Rabbit.CONNECTING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-8", Rabbit.DECLARING_QOS, RabbitEvent.QOS_OK, Rabbit.CONSUMING),
        ("R-000-9", Rabbit.DECLARING_QOS, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-10", Rabbit.CONSUMING, RabbitEvent.CONSUME_OK, Rabbit.DELIVERING),
        ("R-000-11", Rabbit.CONSUMING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-12", Rabbit.CONSUMING, RabbitEvent.CANCEL_OK, Rabbit.DRAINING_QUEUE),
        ("R-000-14", Rabbit.RECONNECTING, RabbitEvent.BACKOFF_EXPIRED, Rabbit.CONNECTING),
        ("R-000-15", Rabbit.SHUTTING_DOWN, RabbitEvent.CANCEL_OK, Rabbit.DRAINING_QUEUE),
        ("R-000-16", Rabbit.DRAINING_QUEUE, RabbitEvent.ALL_SETTLED, Rabbit.DISCONNECTED),
        ("R-000-27", Rabbit.DISCONNECTED, RabbitEvent.CONNECT, Rabbit.CONNECTING),
        ("R-000-41", Rabbit.DELIVERING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("D-10 stop", Rabbit.CONNECTING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.DECLARING_QOS, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.CONSUMING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.DELIVERING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.RECONNECTING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 deadline", Rabbit.SHUTTING_DOWN, RabbitEvent.DEADLINE, Rabbit.DISCONNECTED),
        ("D-10 deadline", Rabbit.DRAINING_QUEUE, RabbitEvent.DEADLINE, Rabbit.DISCONNECTED),
    ],
)
def test_arrow(requirement: str, before: Rabbit, event: RabbitEvent, after: Rabbit) -> None:
    assert RABBIT[before, event] is after, requirement


def test_idle_is_not_a_transition() -> None:
    """R-000-13 with D-10: a consumer without messages goes on delivering."""
    assert Rabbit.DISCONNECTED not in {
        after for (before, _), after in RABBIT.items() if before is Rabbit.DELIVERING
    }


def test_a_reconnecting_consumer_is_shut_down_only_by_a_stop() -> None:
    """R-000-14 with D-10: the text's arrow, not the diagram's."""
    ways = [
        event
        for (before, event), after in RABBIT.items()
        if before is Rabbit.RECONNECTING and after is Rabbit.SHUTTING_DOWN
    ]
    assert ways == [RabbitEvent.STOP]


@every_table
def test_every_state_can_be_reached(table: Table) -> None:
    assert reachable(table, start_of(table)) == states_of(table)


@every_table
def test_every_state_but_the_last_can_be_stopped(table: Table) -> None:
    """D-10: a stop is possible in every state."""
    unstoppable = {state for state in states_of(table) if (state, RabbitEvent.STOP) not in table}
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
    ending = {after for (_, event), after in table.items() if event is RabbitEvent.STOP}
    onward = {key: after for key, after in table.items() if key[0] != end}
    after_a_stop = set().union(*(reachable(onward, state) for state in ending))
    assert not any(
        (state, RabbitEvent.BACKOFF_EXPIRED) in table or (state, RabbitEvent.OPEN) in table
        for state in after_a_stop - {end}
    )
