"""Dead letters on a quorum queue with a low delivery limit: no number of looks loses one (RB10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.transports.seam import Outgoing
from support.deadhouse import DeadHouse, action
from support.fixtures import Broker
from support.waiting import wait_for

LIMIT = 5


@pytest.fixture
def house(rabbit: Broker, tmp_path: Path) -> DeadHouse:
    (tmp_path / "crm.py").write_text("def never(message):\n    return False\n")
    queue = rabbit.queues.declare(rabbit.queues.name("worn"))
    rabbit.queues.declare(f"{queue}.dlq", {"x-delivery-limit": LIMIT}, quorum=True)
    return DeadHouse(rabbit.url, queue, tmp_path, "quorum", rabbit.queues)


def back(house: DeadHouse, number: int) -> None:
    wait_for(lambda: house.depth(house.dlq) == number, 30, "all to be back")


@pytest.mark.parametrize(
    "look",
    [
        ("list",),
        ("list", "--limit", "1"),
        ("show", "--match", "id=2", "--limit", "1"),
        ("export", "-", "--reveal"),
        ("redrive", "--dry-run"),
        ("redrive", "--match", "id=99"),
        ("drop",),  # nobody to ask
    ],
    ids=" ".join,
)
def test_RB10_twelve_looks_lose_nothing(house: DeadHouse, look: tuple[str, ...]) -> None:
    house.put(house.dlq, [Outgoing(action(number), {"k": number}) for number in range(4)])
    said = []
    for _ in range(12):
        said.append(house.dlq_command(*look))
        back(house, 4)
    assert {one.code for one in said} == {2 if look == ("drop",) else 0}
    told = [one for one in said if "republished" in one.err]
    assert told
    assert all(one.err.count("republished") == 1 for one in told)
    left = house.take(house.dlq)
    assert sorted(one.id for one in left) == [0, 1, 2, 3]
    assert all(one.headers["k"] == one.id for one in left)


def test_what_is_redriven_is_not_put_anew(house: DeadHouse) -> None:
    """Refreshed is what stays; the others go to work, once."""
    house.die(1, 2)
    for _ in range(3):
        assert house.dlq_command("list").code == 0
        back(house, 2)
    said = house.dlq_command("redrive", "--match", "id=1")
    assert said.code == 0, said.err
    assert "1 of these messages" in said.err
    assert house.ids(house.queue) == [1]
    assert house.ids(house.dlq) == [2]
