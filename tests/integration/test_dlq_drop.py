"""`chronicle dlq drop` at a terminal: the question, and what happens while a person thinks about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.answering import at_terminal
from support.deadhouse import DeadHouse, at_rabbit
from support.fixtures import Broker
from support.proxy import Proxy


@pytest.fixture(params=["local", "classic", "quorum"])
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


def test_whoever_takes_their_time_to_answer_holds_no_connection(rabbit: Broker, tmp_path: Path) -> None:
    """Nobody serves a connection while a person thinks: there must be none that could break."""
    house = at_rabbit(rabbit.queues, tmp_path, "classic")
    house.die(1, 2, 3, 4, 5)
    with Proxy(house.url) as proxy:
        code, shown = dropped(replace(house, url=proxy.url_for(house.url)), proxy.cut)
    assert code == 0, shown
    assert "Drop the 5 dead letters" in shown
    assert "5 dead letters dropped from" in shown
    assert house.depth(house.dlq) == 0


def test_no_more_are_dropped_than_were_asked_about(house: DeadHouse) -> None:
    """What died while a person was thinking is something else than what was shown to them."""
    code, shown = dropped(house, lambda: house.die(6, 7))
    assert code == 0, shown
    assert "7 dead letters in" in shown
    assert "no more than the oldest 5 are dropped" in shown
    assert "2 of 7 not looked at, and still in" in shown
    assert len(house.ids(house.dlq)) == 2


def test_fewer_than_were_asked_about_are_told(house: DeadHouse) -> None:
    code, shown = dropped(house, lambda: house.take(house.dlq))
    assert code == 0, shown
    assert "0 dead letters in" in shown
    assert "0 dead letters dropped from" in shown


def test_whoever_says_no_changes_nothing(house: DeadHouse) -> None:
    code, shown = dropped(house, lambda: None, answer="n")
    assert (code, "nothing dropped" in shown) == (0, True)
    assert house.depth(house.dlq) == 5
    assert not list(house.folder.glob("*.jsonl"))
