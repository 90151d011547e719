"""Every outcome has one verdict: the rows of 004, D-1, D-3, D-4, D-16, RB11."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.core.delivery import Delivery, Envelope, completed_cycles
from chronicle.core.outcome import (
    Action,
    Asked,
    Exhausted,
    Failed,
    Fatal,
    Interrupted,
    Invalid,
    Outcome,
    Synced,
    Verdict,
)
from chronicle.core.policy import (
    OnException,
    OnExhausted,
    OnFailure,
    OnInvalid,
    Policy,
    broker_cannot_move,
    cannot_move,
    decide,
    grown,
    held,
    nobody_can_move,
    not_kept,
)
from chronicle.errors import LONGEST_DELAY, Ask, DeadLetter, Drop, Retry

FRESH = Delivery(b"{}", queue="q", transport="test")
AGAIN = Delivery(b"{}", queue="q", transport="test", redelivered=True)
WHY = "because"


@pytest.mark.parametrize(
    ("shows", "outcome", "policy", "first", "second"),
    [
        ("R-004-29", Synced(), Policy(), "ack", "ack"),
        ("R-004-30 R-004-33", Failed(WHY), Policy(), "requeue", "dead-letter"),
        ("R-004-16 R-004-18 D-4", Invalid(WHY), Policy(), "requeue", "dead-letter"),
        ("D-20", Invalid(WHY, sealed=True), Policy(), "requeue", "dead-letter"),
        ("R-004-31 R-004-32 D-16 D-17", Fatal(WHY), Policy(), "leave", "leave"),
        ("R-004-14 D-3", Exhausted(4, 3), Policy(max_retries=3), "drop", "drop"),
        ("D-11", Interrupted(), Policy(), "leave", "leave"),
        ("D-1", Failed(WHY), Policy(OnFailure.DEAD_LETTER), "dead-letter", "dead-letter"),
        ("D-1 R-000-33", Failed(WHY), Policy(OnFailure.REQUEUE), "requeue", "requeue"),
        ("D-1 R-000-32", Failed(WHY), Policy(OnFailure.ACK), "ack", "ack"),
        ("D-4", Invalid(WHY), Policy(on_invalid=OnInvalid.DEAD_LETTER), "dead-letter", "dead-letter"),
        ("D-4", Invalid(WHY), Policy(OnFailure.ACK), "requeue", "dead-letter"),
        ("D-3", Exhausted(4, 3), Policy(on_exhausted=OnExhausted.DEAD_LETTER), "dead-letter", "dead-letter"),
        ("D-16", Asked(Retry(WHY, after=5), WHY), Policy(), "requeue", "requeue"),
        ("D-16", Asked(DeadLetter(WHY), WHY), Policy(OnFailure.ACK), "dead-letter", "dead-letter"),
        ("D-16", Asked(Drop(WHY), WHY), Policy(), "drop", "drop"),
        ("D-16", Asked(Ask(WHY), WHY), Policy(), "requeue", "dead-letter"),
    ],
)
def test_rows(shows: str, outcome: Outcome, policy: Policy, first: str, second: str) -> None:
    """The first delivery of a message, and the same outcome when it came again."""
    assert decide(outcome, FRESH, policy).action == first
    assert decide(outcome, AGAIN, policy).action == second


def test_D_3_the_reason_names_count_and_limit() -> None:
    assert decide(Exhausted(4, 3), FRESH, Policy(max_retries=3)).reason == "4 retries, limit 3"


def test_D_1_requeueing_for_ever_grows_its_delay() -> None:
    assert decide(Failed(), FRESH, Policy(OnFailure.REQUEUE)).delay is None
    assert decide(Failed(), FRESH, Policy()).delay == 0.0


@pytest.mark.parametrize(
    ("tries", "action", "delay"),
    [
        (1, "retry", 5.0),
        (2, "retry", 30.0),
        (3, "retry", 30.0),
        (4, "dead-letter", 0.0),
        (9, "dead-letter", 0.0),
    ],
)
def test_R_003_23_and_24_tries_are_counted_and_the_last_delay_repeats(
    tries: int, action: str, delay: float
) -> None:
    policy = Policy(OnFailure.RETRY, max_attempts=4, retry_delays=(5.0, 30.0))
    came = Delivery(b"", queue="q", transport="test", counted=tries - 1)
    verdict = decide(Failed(WHY), came, policy)
    assert (verdict.action, verdict.delay, verdict.reason) == (action, delay, WHY)


def test_R_003_8_one_attempt_is_no_retry() -> None:
    assert decide(Failed(), FRESH, Policy(OnFailure.RETRY, max_attempts=1)).action is Action.DEAD_LETTER


def test_D_3_waits_in_retry_queues_of_our_own_are_no_rounds() -> None:
    ours = {"queue": "q.retry.5s", "reason": "expired", "count": 9}
    theirs = {"queue": "org.1.fail", "reason": "expired", "count": 2}
    assert completed_cycles({"x-death": [ours]}, "q") == 0
    assert completed_cycles({"x-death": [ours, theirs]}, "q") == 2
    assert completed_cycles({"x-death": [theirs, ours]}, "q") == 2
    assert completed_cycles({"x-death": [ours]}, "other") == 9


def test_D_16_a_syncer_chooses_the_delay() -> None:
    assert decide(Asked(Retry(after=2.5), WHY), FRESH, Policy()).delay == 2.5
    assert decide(Asked(Retry(), WHY), FRESH, Policy()).delay is None


@pytest.mark.parametrize("after", [-1.0, float("inf"), float("nan"), 1e16])
def test_D_16_a_delay_that_is_none_is_refused(after: float) -> None:
    with pytest.raises(ValueError, match="zero or more"):
        Retry(after=after)


def test_RB11_a_round_through_a_retry_queue_gets_its_two_tries() -> None:
    """R-004-33 looks at the flag, which every round clears, and not at how often it was tried."""
    headers = {"x-death": [{"queue": "q", "reason": "rejected", "count": 7}]}
    back = Delivery(b"{}", queue="q", transport="test", envelope=Envelope(headers))
    assert back.attempts == 8
    assert decide(Failed(), back, Policy()).action == Action.REQUEUE


FORGED: list[object] = [
    [],
    "str",
    [1],
    [{"count": "9"}],
    {"queue": "q", "reason": "rejected", "count": 9},
    -1,
    [{"queue": "q", "reason": "rejected", "count": -1}],
    None,
    [None, [], "x"],
    [{"queue": "q", "reason": "rejected", "count": True}],
    [{"queue": "q", "reason": "rejected", "count": 2.5}],
    [{"queue": ["q"], "reason": {}, "count": None}],
    b"\xff",
]


@pytest.mark.parametrize("forged", FORGED)
def test_RB11_a_forged_x_death_counts_nothing(forged: object) -> None:
    came = Delivery(b"", queue="q", transport="test", envelope=Envelope({"x-death": forged}))
    assert came.attempts == 1
    assert completed_cycles(came.headers, came.queue) == 0


@pytest.mark.parametrize(
    ("headers", "facts", "attempts"),
    [
        ({}, {}, 1),
        ({}, {"redelivered": True}, 2),
        ({}, {"counted": 4}, 5),
        ({"x-delivery-count": 3}, {"redelivered": True}, 4),
        ({"x-chronicle-attempts": 6}, {}, 7),
        ({"x-chronicle-attempts": "6", "x-delivery-count": -2}, {}, 1),
        ({"x-death": [{"queue": "q", "reason": "rejected", "count": 2},
                      {"queue": "q", "reason": "delivery_limit", "count": 1},
                      {"queue": "q", "reason": "expired", "count": 50},
                      {"queue": "other", "reason": "rejected", "count": 50}]}, {}, 4),
    ],
)  # fmt: skip
def test_D_2_attempts(headers: dict[str, Any], facts: dict[str, Any], attempts: int) -> None:
    came = Delivery(b"", queue="q", transport="test", envelope=Envelope(headers), **facts)
    assert came.attempts == attempts


HEADERS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["x-death", "x-delivery-count", "x-chronicle-attempts", b"\xff"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["count", "queue", "reason"]), inner),
    ),
)
DELIVERIES = st.builds(
    Delivery,
    st.binary(max_size=5),
    queue=st.sampled_from(["q", "", "x"]),
    transport=st.just("test"),
    redelivered=st.booleans(),
    counted=st.integers(min_value=0),
    envelope=st.builds(Envelope, HEADERS),
)
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Synced),
    st.builds(Failed, st.text()),
    st.builds(Invalid, st.text(), st.booleans()),
    st.builds(Exhausted, st.integers(), st.integers()),
    st.builds(Fatal, st.text()),
    st.builds(Interrupted),
    st.builds(
        Asked,
        st.one_of(
            st.builds(Retry, st.text(), st.none() | st.floats(min_value=0, max_value=LONGEST_DELAY)),
            st.builds(DeadLetter, st.text()),
            st.builds(Drop, st.text()),
        ),
        st.text(),
    ),
)
POLICIES = st.builds(
    Policy,
    st.sampled_from(OnFailure),
    st.sampled_from(OnInvalid),
    st.sampled_from(OnException),
    st.sampled_from(OnExhausted),
    st.none() | st.integers(min_value=1),
)


@given(DELIVERIES, OUTCOMES, POLICIES)
def test_every_outcome_of_every_delivery_has_one_verdict(
    delivery: Delivery, outcome: Outcome, policy: Policy
) -> None:
    """Nothing but success is acknowledged, unless `--on-failure ack` was asked for by name."""
    verdict = decide(outcome, delivery, policy)
    assert isinstance(verdict, Verdict)
    assert delivery.attempts >= 1
    if verdict.action is Action.ACK:
        assert isinstance(outcome, Synced) or policy.on_failure is OnFailure.ACK
    if verdict.action is Action.DROP:
        assert isinstance(outcome, Exhausted) or (
            isinstance(outcome, Asked) and isinstance(outcome.ask, Drop)
        )


REHEARSAL = Policy(OnFailure.REQUEUE, rehearsal=True)


def test_a_rehearsal_does_not_wait_and_comes_to_an_end() -> None:
    """Replay and people's tests: what would be tried for ever ends, and says so."""
    assert decide(Failed(WHY), FRESH, REHEARSAL) == Verdict(Action.REQUEUE, WHY)
    tired = Delivery(b"", queue="q", transport="t", counted=9)
    last = decide(Asked(Retry(WHY, after=60), WHY), tired, REHEARSAL)
    assert last.action is Action.DEAD_LETTER
    assert "a real run would keep retrying it" in last.reason


@pytest.mark.parametrize(
    ("outcome", "action"),
    [
        (Synced(), Action.ACK),
        (Failed(WHY), Action.DEAD_LETTER),
        (Invalid(WHY), Action.DEAD_LETTER),
        (Asked(Retry(WHY, after=60), WHY), Action.DEAD_LETTER),
        (Asked(Drop(WHY), WHY), Action.DEAD_LETTER),
        (Fatal(WHY), Action.LEAVE),
        (Interrupted(), Action.LEAVE),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_a_dead_letter_that_is_only_tried_goes_nowhere_unless_it_is_synced(
    outcome: Outcome, action: Action
) -> None:
    """`dlq redrive --verify`: no requeue, no drop; it stays with today's reason, or as it was."""
    verdict = decide(outcome, FRESH, Policy(trial=True))
    assert (verdict.action, verdict.delay) == (action, 0.0)
    if action is Action.DEAD_LETTER:
        assert verdict.reason == WHY


def test_D_16_asking_for_another_try_is_no_way_around_the_limit() -> None:
    tired = Delivery(b"", queue="q", transport="t", counted=2)
    policy = Policy(OnFailure.RETRY, max_attempts=3)
    assert decide(Asked(Retry(WHY, after=1), WHY), FRESH, policy).action is Action.RETRY
    assert decide(Asked(Retry(WHY, after=1), WHY), tired, policy).action is Action.DEAD_LETTER
    assert decide(Asked(Retry(WHY, after=0), WHY), FRESH, Policy()).delay is None


@pytest.mark.parametrize(
    ("after", "step"),
    [(None, 30.0), (0, 30.0), (1, 5.0), (5, 5.0), (5.1, 30.0), (300, 300.0), (3600, 300.0)],
)
def test_D_2_asking_for_another_try_waits_in_the_step_that_is_long_enough(
    after: float | None, step: float
) -> None:
    """Only the configured steps have a queue to wait in; without a wish it is this try's own."""
    second = Delivery(b"", queue="q", transport="t", counted=1)
    policy = Policy(OnFailure.RETRY, retry_delays=(5.0, 30.0, 300.0))
    assert decide(Asked(Retry(WHY, after=after), WHY), second, policy) == Verdict(Action.RETRY, WHY, step)


def test_D_2_the_steps_need_not_rise() -> None:
    policy = Policy(OnFailure.RETRY, retry_delays=(60.0, 10.0, 30.0))
    assert decide(Asked(Retry(WHY, after=5), WHY), FRESH, policy).delay == 10.0
    assert decide(Asked(Retry(WHY, after=90), WHY), FRESH, policy).delay == 60.0


def test_D_2_a_step_beyond_the_tries_is_used_by_whoever_asks_for_so_long() -> None:
    """So each step needs its queue, however few tries there are."""
    policy = Policy(OnFailure.RETRY, max_attempts=3, retry_delays=(5.0, 30.0, 300.0))
    second = Delivery(b"", queue="q", transport="test", counted=1)
    assert [decide(Failed(), came, policy).delay for came in (FRESH, second)] == [5.0, 30.0]
    assert decide(Asked(Retry(WHY, after=120), WHY), FRESH, policy).delay == 300.0


class TestWhatABrokerCannotDo:
    """What a transport or the engine finds out about a verdict later on is decided here, too."""

    MOVED = Verdict(Action.DEAD_LETTER, WHY)

    def test_RB11_what_only_chronicle_can_move_and_what_nobody_can_is_still_a_dead_letter(self) -> None:
        assert broker_cannot_move(self.MOVED, "forged") == Verdict(
            Action.DEAD_LETTER, f"{WHY}; forged, so chronicle moved a copy without it"
        )
        assert nobody_can_move(self.MOVED, "forged") == Verdict(
            Action.DEAD_LETTER, f"{WHY}; forged, so it is put aside and stays in its queue"
        )

    def test_a_copy_that_cannot_be_made_leaves_the_moving_to_the_broker(self) -> None:
        asked = Verdict(Action.RETRY, WHY, 5.0)
        assert cannot_move(asked, "too large") == Verdict(
            Action.DEAD_LETTER, f"{WHY}; too large, so it is left to the broker"
        )

    def test_a_delay_that_nobody_named_grows_from_a_second_to_a_minute(self) -> None:
        verdict = Verdict(Action.REQUEUE, WHY, None)
        assert [grown(verdict, tries).delay for tries in (1, 2, 3, 7, 10**6)] == [1, 2, 4, 60, 60]
        assert grown(Verdict(Action.REQUEUE, WHY, 7.0), 5).delay == 7.0

    def test_RB15_a_delay_is_no_longer_than_a_delivery_may_be_held(self) -> None:
        """What is kept back in memory is unacknowledged, and a broker takes that back after a while."""
        short, long = Verdict(Action.REQUEUE, WHY, 600.0), Verdict(Action.REQUEUE, WHY, 3600.0)
        assert held(short, 600.0) is short
        assert held(Verdict(Action.REQUEUE, WHY, 1e308), 600.0).delay == 600.0
        assert held(long, 600.0) == Verdict(
            Action.REQUEUE, f"{WHY}; held for at most 600s at a time, not for 3600s", 600.0
        )


@pytest.mark.parametrize("action", Action)
def test_S10_a_message_that_nobody_keeps_is_acknowledged_left_or_dropped(action: Action) -> None:
    """What would need a second try or dead letters ends here, and the reason says why."""
    decided = Verdict(action, "no luck", 5.0)
    verdict = not_kept(decided)
    if action in (Action.ACK, Action.DROP, Action.LEAVE):
        assert verdict is decided
    else:
        assert verdict == Verdict(Action.DROP, "no luck; nobody keeps this message, so it is dropped")
