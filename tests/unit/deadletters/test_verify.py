"""Trying dead letters where they lie: what is removed, what is published again, and what is left alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Failed, Fatal, Outcome, Synced
from chronicle.core.policy import Policy, decide
from chronicle.core.settlement import Fate, Settlement
from chronicle.deadletters.verify import VerifyTransport
from chronicle.errors import BrokerRefused, BrokerUnreachable, ChronicleError, ConnectionLost
from chronicle.transports.batches import BATCH
from chronicle.transports.seam import Closing
from support.letters import Letters

TRYING = Policy(trial=True)
NO = Failed("today's reason")
both = pytest.mark.parametrize("moves", [False, True], ids=["publishes", "moves"])


def opened(letters: Letters, limit: int | None = None) -> VerifyTransport:
    transport = VerifyTransport(letters, lambda: letters, "q", "me", limit=limit)
    transport.open(lambda: False)
    return transport


def settled(transport: VerifyTransport, batch: Sequence[Delivery], *outcomes: Outcome) -> list[Fate]:
    work = [
        Settlement(one, outcome, decide(outcome, one, TRYING))
        for one, outcome in zip(batch, outcomes, strict=True)
    ]
    return [one.fate for one in transport.settle(work)]


@both
def test_success_removes_failure_renews_the_reason_and_a_fatal_answer_changes_nothing(moves: bool) -> None:
    letters = Letters(3, moves=moves)
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, Synced(), NO, Fatal("None")) == [Fate.DONE] * 3
    assert letters.reasons == [(b"2", "old"), (b"1", "today's reason")]


@both
def test_what_was_renewed_is_not_tried_again(moves: bool) -> None:
    letters = Letters(2, moves=moves)
    transport = opened(letters)
    first = transport.receive(1, 0.0)
    assert settled(transport, first, NO) == [Fate.DONE]
    assert letters.stops == 0
    second = transport.receive(1, 0.0)
    assert letters.stops == 1  # or the broker would hand out, and mark, what was renewed
    assert settled(transport, second, NO) == [Fate.DONE]
    assert transport.is_empty()
    assert transport.receive(1, 0.0) == ()
    assert (transport.tried, len(letters.queue)) == (2, 2)


def test_a_limit_bounds_the_tries_and_waiting_serves_the_connection() -> None:
    letters = Letters(5)
    transport = opened(letters, limit=2)
    assert len(transport.receive(10, 0.0)) == 2
    assert transport.receive(10, 0.0) == ()
    assert (transport.is_empty(), letters.served) == (True, 1)


@both
def test_a_result_that_comes_when_the_connection_is_gone_is_stale(moves: bool) -> None:
    """A copy would make it two; and there is nobody left to publish with."""
    letters = Letters(2, moves=moves)
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    transport.close(Closing.LOST)
    assert settled(transport, batch, Synced(), NO) == [Fate.STALE] * 2
    transport.open(lambda: False)
    assert settled(transport, batch, Synced(), NO) == [Fate.STALE] * 2
    assert letters.reasons == [(b"0", "old"), (b"1", "old")]


@pytest.mark.parametrize("trouble", [BrokerUnreachable("away"), ConnectionLost("cut")])
def test_a_broker_that_goes_away_while_publishing_is_a_lost_connection(trouble: ChronicleError) -> None:
    """The engine expects nothing else; and nothing was removed, the successes included."""
    letters = Letters(2)
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    letters.trouble = trouble
    with pytest.raises(ConnectionLost):
        settled(transport, batch, Synced(), NO)
    assert letters.reasons == [(b"0", "old"), (b"1", "old")]


@both
def test_a_removal_in_doubt_claims_nothing(moves: bool) -> None:
    letters = Letters(1, moves=moves)
    transport = opened(letters)
    (one,) = transport.receive(10, 0.0)
    letters.lost = True
    work = Settlement(one, Synced(), decide(Synced(), one, TRYING))
    with pytest.raises(ConnectionLost):
        transport.settle([work])
    assert work.fate is Fate.OPEN
    letters.lost = False
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    assert len(transport.receive(10, 0.0)) == 1


@both
def test_what_cannot_be_published_again_stays_as_it_is(moves: bool) -> None:
    letters = Letters(3, moves=moves)
    letters.unsendable = b"1"
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, NO, NO, NO) == [Fate.DONE, Fate.FAILED, Fate.DONE]
    assert letters.reasons == [(b"1", "old"), (b"0", "today's reason"), (b"2", "today's reason")]


@both
def test_a_queue_that_refuses_leaves_all_as_they_are(moves: bool) -> None:
    letters = Letters(2, moves=moves)
    letters.trouble = BrokerRefused("full")
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, NO, Synced()) == [Fate.FAILED, Fate.DONE]
    assert letters.reasons == [(b"0", "old")]


def test_one_step_needs_no_publisher() -> None:
    letters = Letters(1, moves=True)

    def nobody() -> Letters:
        raise AssertionError("nobody publishes")

    transport = VerifyTransport(letters, nobody, "q", "me")
    transport.open(lambda: False)
    assert settled(transport, transport.receive(10, 0.0), NO) == [Fate.DONE]
    transport.close()
    assert letters.reasons == [(b"0", "today's reason")]


def test_a_move_in_doubt_claims_nothing_and_what_had_moved_is_not_tried_again() -> None:
    """A batch is one step: the first ones are at the end of the queue, whatever becomes of the others."""
    letters = Letters(BATCH + 1, moves=True)
    transport = opened(letters)
    batch = transport.receive(BATCH + 1, 0.0)
    letters.cut_after = 1
    with pytest.raises(ConnectionLost):
        settled(transport, batch, *[NO] * len(batch))
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    (again,) = transport.receive(10, 0.0)
    assert again.body == b"%d" % BATCH
    assert [reason for _, reason in letters.reasons] == ["old", *["today's reason"] * BATCH]


def test_what_somebody_else_took_meanwhile_is_left_alone() -> None:
    """Put back, it would be there twice: with whoever took it, and here."""
    letters = Letters(3, moves=True)
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    letters.stolen = (b"1",)
    assert settled(transport, batch, NO, NO, NO) == [Fate.DONE, Fate.STALE, Fate.DONE]
    assert (transport.vanished, transport.is_empty()) == (1, True)
    assert letters.reasons == [(b"0", "today's reason"), (b"2", "today's reason")]
