"""The machine that follows a table (R-000-3, R-000-43). The tables themselves are in test_states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.machine import Machine
from chronicle.transports.rabbitmq.states import RABBIT, Rabbit, RabbitEvent


def test_it_follows_the_arrow_and_tells_who_watches() -> None:
    seen: list[tuple[str, str, str]] = []
    machine = Machine(RABBIT, Rabbit.DISCONNECTED, lambda *move: seen.append(move))
    assert machine.fire(RabbitEvent.CONNECT) == Rabbit.CONNECTING
    assert machine.fire(RabbitEvent.FAILED) == machine.state == Rabbit.RECONNECTING
    assert seen == [
        (Rabbit.DISCONNECTED, Rabbit.CONNECTING, RabbitEvent.CONNECT),
        (Rabbit.CONNECTING, Rabbit.RECONNECTING, RabbitEvent.FAILED),
    ]


def test_rule_2_an_event_without_an_arrow_is_a_defect() -> None:
    machine = Machine(RABBIT, Rabbit.DISCONNECTED)
    assert not machine.can(RabbitEvent.CONSUME_OK)
    with pytest.raises(AssertionError, match="no transition for consume_ok from Disconnected"):
        machine.fire(RabbitEvent.CONSUME_OK)
    assert machine.state == Rabbit.DISCONNECTED


def test_rule_2_the_same_stop_twice_is_silent() -> None:
    seen: list[tuple[str, str, str]] = []
    machine = Machine(RABBIT, Rabbit.DELIVERING)
    machine.watch(lambda *move: seen.append(move))
    machine.fire(RabbitEvent.STOP)
    machine.fire(RabbitEvent.STOP)
    assert len(seen) == 1


@given(st.lists(st.sampled_from(list(RabbitEvent)), max_size=40))
def test_every_walk_stays_on_the_table_and_every_move_is_told(events: list[RabbitEvent]) -> None:
    moves: list[tuple[str, str, str]] = []
    machine = Machine(RABBIT, Rabbit.DISCONNECTED, lambda *move: moves.append(move))
    for event in events:
        if machine.can(event):
            machine.fire(event)
    assert all(RABBIT[before, event] == after for before, after, event in moves)
    states = [str(Rabbit.DISCONNECTED), *(after for _, after, _ in moves)]
    assert [before for before, _, _ in moves] == states[:-1]
    assert machine.state == states[-1]
