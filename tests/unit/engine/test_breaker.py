"""Z7: a wrong key store stops a run before the queue is in the dead letters; strangers do not."""

from __future__ import annotations

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Invalid, Outcome, Synced, Verdict
from chronicle.core.settlement import Settlement
from chronicle.engine.breaker import LIMIT, SealBreaker

DAMAGED = Invalid("damaged", sealed=True)
STRANGE = Invalid("a stranger's", sealed=True, stranger=True)
DEAD = Verdict(Action.DEAD_LETTER, "")


def settled(outcome: Outcome, *, opened: bool = False) -> Settlement:
    delivery = Delivery(b"{}", queue="q", transport="memory")
    return Settlement(delivery, outcome, DEAD, opened=opened)


def count_to_break(breaker: SealBreaker, outcome: Outcome) -> int:
    """How many of these break it; zero if a hundred times the limit do not."""
    return next((n for n in range(1, 100 * LIMIT) if breaker.broken_by(settled(outcome))), 0)


def test_many_that_cannot_be_opened_break_it() -> None:
    assert count_to_break(SealBreaker(), DAMAGED) == LIMIT
    assert count_to_break(SealBreaker(), STRANGE) == LIMIT


def test_plain_messages_neither_break_nor_reset_it() -> None:
    breaker = SealBreaker()
    for _ in range(LIMIT - 1):
        assert not breaker.broken_by(settled(DAMAGED))
        assert not breaker.broken_by(settled(Synced()))
        assert not breaker.broken_by(settled(Invalid("no JSON")))
    assert breaker.broken_by(settled(DAMAGED))


def test_one_that_was_opened_shows_the_pins_are_right() -> None:
    """From then on a producer who is not trusted can publish what it likes; a missing key still counts."""
    breaker = SealBreaker()
    breaker.broken_by(settled(Synced(), opened=True))
    assert count_to_break(breaker, STRANGE) == 0
    assert count_to_break(breaker, DAMAGED) == LIMIT
