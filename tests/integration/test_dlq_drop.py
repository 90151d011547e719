"""`chronicle dlq drop` at a terminal: the question, and what happens while a person thinks about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.answering import at_terminal
from support.deadhouse import DeadHouse, at_rabbit
from support.fixtures import Broker


@pytest.fixture(params=["local", "quorum"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> DeadHouse:
    """A queue with five dead letters."""
    if request.param == "local":
        made = DeadHouse(f"local:{tmp_path / 'q.db'}", "orders", tmp_path, "local")
        made.put(made.queue, [])
    else:
        made = at_rabbit(request.getfixturevalue("rabbit").queues, tmp_path, request.param)
    made.die(1, 2, 3, 4, 5)
    return made


def dropped(house: DeadHouse, meanwhile: Callable[[], object], answer: str = "y") -> tuple[int, str]:
    """Drop them all at a terminal; the exit code, and what was shown before and after the answer."""
    with at_terminal(house.folder, "dlq", "drop", *house.where, env=house.env) as command:
        command.wait_for("[y/N]")
        meanwhile()
        command.answer(answer, after="[y/N]")
        return command.end()


def test_whoever_takes_their_time_to_answer_keeps_the_connection(rabbit: Broker, tmp_path: Path) -> None:
    """It is served while a person thinks, for three times as long as the broker waits for a heartbeat."""
    house = at_rabbit(rabbit.queues, tmp_path, "classic")
    house.die(1, 2, 3, 4, 5)
    patient = replace(house, url=f"{house.url}?heartbeat=2")
    code, shown = dropped(patient, lambda: time.sleep(12))
    assert code == 0, shown
    assert "Drop the 5 dead letters" in shown
    assert "5 dead letters dropped from" in shown
    assert house.depth(house.dlq) == 0


def test_another_answer_is_asked_for_again(house: DeadHouse) -> None:
    code, shown = dropped(house, lambda: None, answer="perhaps\ny")
    assert (code, shown.count("[y/N]")) == (0, 2), shown
    assert house.ids(house.dlq) == []


def test_whoever_says_no_changes_nothing(house: DeadHouse) -> None:
    code, shown = dropped(house, lambda: None, answer="n")
    assert (code, "nothing dropped" in shown) == (0, True)
    assert house.depth(house.dlq) == 5
    assert not list(house.folder.glob("*.jsonl"))
