"""Dropping dead letters: what is certain about them."""

from __future__ import annotations

import pytest

from chronicle.deadletters.export import Export
from chronicle.errors import ConnectionLost
from chronicle_cli.commands.dlq.export import so_far
from support.letters import Letters


def dropping(letters: Letters) -> Export:
    letters.open(lambda: False)
    return Export(letters, "q", None, drop=True)


def ignore(_number: int) -> None: ...


def test_a_removal_without_an_answer_is_in_doubt_and_counts_neither_way() -> None:
    """The broker may have carried it out, and its answer may have been lost."""
    letters = Letters(3)
    work = dropping(letters)
    letters.lost = True
    with pytest.raises(ConnectionLost):
        work.run(ignore)
    assert (work.tally.moved, work.in_doubt) == (0, 3)
    assert so_far(work, "dropped", "q") == (
        "0 dead letters dropped before that; whether 3 more are gone is not known: the broker did not answer"
        "; the rest is still in q"
    )


def test_nothing_is_in_doubt_when_nothing_was_being_removed() -> None:
    work = dropping(Letters(3))
    work.run(ignore)
    assert so_far(work, "dropped", "q") == "3 dead letters dropped before that; the rest is still in q"
