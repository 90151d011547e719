"""Threads share one CPU only where it brings something, and only as long as it does."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from chronicle.workers.one_cpu import OneCpu
from chronicle.workers.trial import HELD, LONGEST_REST, REST, Pulse

TOSSING = Pulse(0.25, 0.25, switches=6_000, done=500)
BETTER = Pulse(0.25, 0.24, switches=600, done=750)
IDLE = Pulse(0.25, 0.001, switches=4, done=0)


def choices(choice: OneCpu, pulses: Iterable[Pulse]) -> list[int | None]:
    return [choice.judge(pulse) for pulse in pulses]


@pytest.mark.parametrize(
    "pulse",
    [
        IDLE,
        Pulse(0.25, 0.02, switches=1_000, done=100),  # they wait for a network, and the lock is free
        Pulse(0.25, 0.25, switches=400, done=500),  # few switches, as with a syncer that does nothing
        Pulse(0.25, 0.45, switches=6_000, done=500),  # much is computed without the lock
        Pulse(0.25, 0.25, switches=6_000, done=0),
    ],
)
def test_it_is_not_tried_where_there_is_nothing_to_gain(pulse: Pulse) -> None:
    assert choices(OneCpu((0, 1), 0), [pulse] * 10) == [None] * 10


def test_it_is_kept_while_messages_cost_less() -> None:
    assert choices(OneCpu((0, 1), 0), [TOSSING, *[BETTER] * 10]) == [0] * 11


def test_what_was_before_is_measured_again_from_time_to_time() -> None:
    choice = OneCpu((0, 1), 0)
    assert choices(choice, [TOSSING, *[BETTER] * (HELD - 1)]) == [0] * HELD
    assert choice.judge(BETTER) is None
    assert choice.judge(TOSSING) == 0


@pytest.mark.parametrize(
    "pulse",
    [
        TOSSING,  # no difference
        Pulse(0.25, 0.12, switches=300, done=375),  # cheap, but somebody else needs that CPU
        Pulse(0.25, 0.25, switches=300, done=500),  # no cheaper
        IDLE,
    ],
)
def test_it_ends_as_soon_as_it_brings_nothing(pulse: Pulse) -> None:
    assert choices(OneCpu((0, 1), 0), [TOSSING, BETTER, pulse]) == [0, 0, None]


def test_the_next_trial_is_on_another_cpu_and_later_each_time() -> None:
    # Nothing changes, whatever is tried: each trial fails.
    found = choices(OneCpu((4, 7), 1), [TOSSING] * 1_000)
    tried = [(at, cpu) for at, cpu in enumerate(found) if cpu is not None]
    assert [cpu for _, cpu in tried[:4]] == [7, 4, 7, 4]
    gaps = [after - before for (before, _), (after, _) in pairwise(tried)]
    assert gaps[:3] == [REST + 2, 2 * REST + 2, 4 * REST + 2]
    assert max(gaps) == LONGEST_REST + 2


def test_after_a_trial_that_succeeded_the_next_rest_is_short_again() -> None:
    choice = OneCpu((0, 1), 0)
    failing = [TOSSING, TOSSING, *[TOSSING] * REST]
    assert choices(choice, failing) == [0, *[None] * (REST + 1)]
    assert choices(choice, [TOSSING, BETTER, *failing[1:]]) == [1, 1, *[None] * (REST + 1)]
    assert choice.judge(TOSSING) == 0
