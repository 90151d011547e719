"""Which syncers run too long, and what is done about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chronicle.core.delivery import Delivery
from chronicle.engine.job import Job, Limits
from chronicle.engine.long_runs import GRACE, LongRuns, Run
from chronicle.telemetry.counters import Counters
from chronicle.transports.seam import Promises
from chronicle.workers.loader import look_at
from chronicle.workers.slot import Slot


def delivery() -> Delivery:
    return Delivery(b"{}", queue="q", transport="t")


def slot(interrupt: Callable[[Delivery], None] | None = None, *, blocks: bool = True) -> Slot:
    made = Slot(lambda: iter(()), lambda: blocks, interrupt)
    made.delivery = delivery()
    return made


class Scene:
    def __init__(self, *slots: Slot, limit: float = 0.0, patience: float = float("inf")) -> None:
        self.slots = slots
        self.named: list[Run] = []
        self.counters = Counters()
        workers: Any = self
        job = Job(look_at(lambda _message: True, "my:syncer"), limits=Limits(limit))
        promises = Promises("t", patience=patience)
        self.runs = LongRuns(job, promises, workers, self.counters, self.named.append)


def test_the_oldest_is_known_and_a_finished_one_forgotten() -> None:
    one, other = slot(), slot()
    scene = Scene(one, other)
    scene.runs.tick(0.0)
    assert scene.counters.oldest == 0.0
    other.delivery = delivery()  # the next one, in the same place
    scene.runs.tick(5.0)
    assert scene.counters.oldest == 5.0
    one.delivery = None
    scene.runs.tick(6.0)
    assert scene.counters.oldest == 1.0
    other.delivery = None
    scene.runs.tick(7.0)
    assert scene.counters.oldest == 0.0


def test_it_is_named_after_a_minute_and_before_the_broker_loses_patience() -> None:
    scene = Scene(slot(), patience=1800.0)
    named: list[int] = []
    for now in range(0, 1800, 10):
        scene.runs.tick(float(now))
        if len(scene.named) > len(named):
            named.append(now)
    assert named == [60, 1350]


def test_with_a_limit_a_minute_is_nothing_special() -> None:
    scene = Scene(slot(lambda _delivery: None), limit=600.0, patience=100.0)
    scene.runs.tick(0.0)
    scene.runs.tick(70.0)
    assert not scene.named
    scene.runs.tick(80.0)
    assert len(scene.named) == 1


def test_what_cannot_be_interrupted_is_stuck_at_its_limit() -> None:
    scene = Scene(slot(), limit=1.0)
    assert scene.runs.tick(0.0) is None
    assert scene.runs.tick(0.9) is None
    stuck = scene.runs.tick(1.0)
    assert stuck is not None
    assert stuck.slot is scene.slots[0]


def test_what_can_be_interrupted_is_asked_once_and_has_a_moment() -> None:
    asked: list[Delivery] = []
    one = slot(asked.append)
    scene = Scene(one, limit=1.0)
    for now in (0.0, 0.5, 1.0, 1.5, GRACE):
        assert scene.runs.tick(now) is None
    assert asked == [one.delivery]
    assert scene.runs.tick(1.0 + GRACE) is not None


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_the_one_that_blocks_the_others_is_the_culprit(culprit: int) -> None:
    slots = [slot(lambda _delivery: None, blocks=number == culprit) for number in range(3)]
    scene = Scene(*slots, limit=1.0)
    scene.runs.tick(0.0)
    stuck = scene.runs.tick(1.0 + GRACE)
    assert stuck is not None
    assert stuck.slot is slots[culprit]
