"""When failures are an outage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Asked, Failed, Invalid, Outcome, Verdict
from chronicle.core.policy import OnFailure, Policy, decide
from chronicle.core.settlement import Settlement
from chronicle.engine.brake import ANOTHER_TRY, Brake, kind_of
from chronicle.errors import DeadLetter, Drop, Retry


def settlement(outcome: Outcome, policy: Policy | None = None) -> Settlement:
    delivery = Delivery(b"{}", queue="q", transport="t")
    return Settlement(delivery, outcome, decide(outcome, delivery, policy or Policy()))


def test_alike_is_the_same_reason_numbers_aside() -> None:
    one = settlement(Failed("the syncer raised HTTPError: 503 for /contacts/ab12f"))
    other = settlement(Failed("the syncer raised HTTPError: 503 for /contacts/9"))
    another = settlement(Failed("the syncer raised KeyError: 'email'"))
    assert kind_of(one) == kind_of(other) != kind_of(another)


def test_another_try_is_alike_whatever_is_said_about_it() -> None:
    for words in ("busy", "come back later"):
        assert kind_of(settlement(Asked(Retry(words), words))) == ANOTHER_TRY


def test_what_says_nothing_about_the_other_side() -> None:
    assert kind_of(settlement(Invalid("not JSON"))) is None
    assert kind_of(settlement(Asked(DeadLetter("no list"), "no list"))) is None
    assert kind_of(settlement(Asked(Drop("test data"), "test data"))) is None
    assert kind_of(settlement(Failed(), Policy(OnFailure.ACK))) is None
    left = settlement(Failed())
    left.verdict = Verdict(Action.LEAVE, "interrupted")
    assert kind_of(left) is None


def test_only_different_messages_count() -> None:
    brake = Brake(3)
    assert not any(brake.failed(message, "down", 0.0) for message in (1, 2, 1, 2, 2))
    assert brake.row == 2
    assert brake.failed(3, "down", 0.0)


def test_another_kind_begins_another_row() -> None:
    brake = Brake(2)
    assert not brake.failed(1, "down", 0.0)
    assert not brake.continues("slow")
    assert not brake.failed(2, "slow", 0.0)
    assert brake.failed(3, "slow", 0.0)


def test_zero_never_brakes() -> None:
    brake = Brake(0)
    assert not any(brake.failed(message, "down", 0.0) for message in range(100))
    assert not brake.row


def test_the_pauses_grow_up_to_a_minute_and_begin_anew() -> None:
    brake = Brake(1)
    for _ in range(2):
        assert brake.failed(1, "down", 100.0)
        assert brake.due == 101.0
        assert [brake.probe_failed(0.0) for _ in range(8)] == [2, 4, 8, 16, 32, 60, 60, 60]
        assert brake.succeeded()
        assert not brake.engaged


@given(st.integers(1, 5), st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 7), st.sampled_from("ab")))))
def test_it_is_on_after_so_many_in_a_row_and_until_a_success(
    limit: int, results: list[tuple[int, str] | None]
) -> None:
    """Against a plain count over the whole story; None is a success."""
    brake = Brake(limit)
    row: set[int] = set()
    kind, on = "", False
    for result in results:
        if result is None:
            assert brake.succeeded() is on
            row, on = set(), False
        else:
            message, like = result
            if not on:
                row = {message} | (row if like == kind else set())
                kind = like
            assert brake.failed(message, like, 0.0) is (not on and len(row) >= limit)
            on = on or len(row) >= limit
        assert brake.engaged is on
