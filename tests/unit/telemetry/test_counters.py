"""The counters of a run."""

from __future__ import annotations

import logging

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action, Synced, Verdict
from chronicle.core.settlement import Fate, Settlement
from chronicle.telemetry.counters import Counters


def settlement(action: Action, fate: Fate = Fate.DONE) -> Settlement:
    delivery = Delivery(b"{}", queue="q", transport="memory")
    return Settlement(delivery, Synced(), Verdict(action, "why"), fate=fate)


@pytest.mark.parametrize(
    ("action", "counted"),
    [
        (Action.ACK, {"ack"}),
        (Action.REQUEUE, {"requeued", "nack"}),
        (Action.DEAD_LETTER, {"dead_lettered", "nack"}),
        (Action.DROP, {"dropped"}),
        (Action.LEAVE, set()),
    ],
)
def test_r_004_40_41_a_verdict_that_was_carried_out_is_counted_by_its_action(
    action: Action, counted: set[str]
) -> None:
    counters = Counters()
    counters.settled(settlement(action))
    assert {name for name, count in counters.facts().items() if count} == counted
    assert counters.handled == (1 if counted else 0)


@pytest.mark.parametrize("action", [action for action in Action if action is not Action.LEAVE])
@pytest.mark.parametrize(
    ("fate", "counted"), [(Fate.STALE, "stale"), (Fate.FAILED, "ack_retry"), (Fate.ASIDE, "put_aside")]
)
def test_d_19_a_verdict_that_was_not_carried_out_counts_as_nothing_else(
    action: Action, fate: Fate, counted: str
) -> None:
    counters = Counters()
    counters.settled(settlement(action, fate))
    assert {name: count for name, count in counters.facts().items() if count} == {counted: 1}


def test_R_000_3_every_transition_is_counted_by_the_state_it_leads_to() -> None:
    counters = Counters()
    for state in ("Connecting", "Reconnecting", "Connecting"):
        counters.entered(state)
    assert counters.states == {"Connecting": 2, "Reconnecting": 1}


def test_notices_are_counted_by_their_event_and_each_for_as_many_as_it_says() -> None:
    counters = Counters()
    for notice in (
        Notice("stream.trimmed", logging.ERROR, "3 entries are gone", {"count": 3}),
        Notice("stream.trimmed", logging.ERROR, "an entry is gone", {"id": "1-0"}),
        Notice("stream.vanished", logging.ERROR, "the stream is gone"),
        Notice("stream.trimmed", logging.INFO, "none this time", {"count": 0}),
    ):
        counters.noticed(notice)
    assert counters.notices == {"stream.trimmed": 4, "stream.vanished": 1}


def test_d_22_what_is_left_to_the_broker_is_rejected_and_not_dead_lettered() -> None:
    counters = Counters()
    counters.settled(settlement(Action.DEAD_LETTER, Fate.REJECTED))
    assert {name for name, count in counters.facts().items() if count} == {"rejected", "nack"}
    assert counters.handled == 1


def test_d_19_r_004_42_every_counter_is_there_and_begins_at_zero() -> None:
    facts = Counters().facts()
    gauges = {"depth", "held", "unsettled", "oldest", "brake"}
    assert set(facts) == set(Counters.__slots__) - gauges - {"states", "notices"}
    assert set(facts) >= {"queued", "received", "ack", "nack", "requeued", "dead_lettered", "rejected",
                          "dropped", "ack_retry", "reconnects", "inflight"}  # fmt: skip
    assert not any(facts.values())


def test_a_program_can_print_them() -> None:
    counters = Counters()
    assert repr(counters) == "Counters(received=0, ack=0, nack=0)"
    counters.received = 2
    counters.settled(settlement(Action.ACK))
    counters.settled(settlement(Action.DEAD_LETTER))
    assert repr(counters) == "Counters(received=2, ack=1, nack=1, dead_lettered=1)"
