"""How often Python looks for garbage while a run has the process to itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from chronicle.workers.garbage import OBJECTS, seldom_collected


@pytest.fixture(autouse=True)
def threshold() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_the_more_messages_are_in_work_the_less_often_it_looks(threshold: tuple[int, int, int]) -> None:
    with seldom_collected(500):
        assert gc.get_threshold() == (500 * OBJECTS, *threshold[1:])


def test_it_looks_as_it_did_afterwards_whatever_happened(threshold: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a bug"), seldom_collected(500):
        raise ValueError("a bug")
    assert gc.get_threshold() == threshold


def test_few_messages_do_not_make_it_look_more_often(threshold: tuple[int, int, int]) -> None:
    with seldom_collected(1):
        assert gc.get_threshold() == threshold


@pytest.mark.parametrize("usual", [0, 1_000_000])
def test_what_somebody_chose_is_kept(usual: int) -> None:
    gc.set_threshold(usual)
    with seldom_collected(500):
        assert gc.get_threshold()[0] == usual
