"""Trying dead letters where they lie: what is removed, what is published again, and what is left alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Self

import pytest

from chronicle.core.deadletters.death import REASON
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.notice import Notice
from chronicle.core.outcome import Failed, Fatal, Outcome, Synced
from chronicle.core.policy import Policy, decide
from chronicle.core.settlement import Fate, Settlement
from chronicle.deadletters.verify import VerifyTransport
from chronicle.errors import BrokerRefused, BrokerUnreachable, ChronicleError, ConnectionLost, InvalidMessage
from chronicle.transports.seam import Closing, Outgoing, nothing

TRYING = Policy(trial=True)
NO = Failed("today's reason")


class Letters:
    """A queue of dead letters with its reader and its publisher in one."""

    transport = "stub"
    place = "nowhere"
    moves = False

    def __init__(self, count: int) -> None:
        self.notices: deque[Notice] = deque()
        self.queue = [letter(b"%d" % number) for number in range(count)]
        self.present = 0
        self.served = 0
        self.stops = 0
        self.trouble: ChronicleError | None = None  # of the next publish
        self.lost = False
        self.unsendable: bytes | None = None
        self._next = 0

    def open(self, stopping: Callable[[], bool]) -> None:
        self.present, self._next = (0 if stopping() else len(self.queue)), 0

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        del timeout
        batch = self.queue[self._next : min(self._next + room, self.present)]
        self._next += len(batch)
        return batch or None

    def remove(self, batch: Sequence[Delivery]) -> None:
        if self.lost:
            raise ConnectionLost("cut")
        self.queue = [one for one in self.queue if one not in batch]
        self._next -= len(batch)
        self.present -= len(batch)

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        raise NotImplementedError

    def serve(self, timeout: float = 0.0) -> None:
        del timeout
        self.served += 1

    def close(self, why: Closing = Closing.SETTLED) -> None: ...

    def stop(self, patience: float) -> None:
        del patience
        self.stops += 1

    def wake(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        meanwhile()
        if self.trouble is not None:
            raise self.trouble
        if any(one.body == self.unsendable for one in batch):
            raise InvalidMessage("a header")
        self.queue += [letter(one.body, str(one.headers[REASON])) for one in batch]

    @property
    def reasons(self) -> list[tuple[bytes, str]]:
        return [(one.body, one.headers[REASON]) for one in self.queue]


def letter(body: bytes, reason: str = "old") -> Delivery:
    return Delivery(body, queue="q.dlq", transport="stub", envelope=Envelope({REASON: reason}))


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


def test_success_removes_failure_renews_the_reason_and_a_fatal_answer_changes_nothing() -> None:
    letters = Letters(3)
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, Synced(), NO, Fatal("None")) == [Fate.DONE] * 3
    assert letters.reasons == [(b"2", "old"), (b"1", "today's reason")]


def test_what_was_renewed_is_not_tried_again() -> None:
    letters = Letters(2)
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


def test_a_result_that_comes_when_the_connection_is_gone_is_stale() -> None:
    """A copy would make it two; and there is nobody left to publish with."""
    letters = Letters(2)
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


def test_a_removal_in_doubt_claims_nothing() -> None:
    letters = Letters(1)
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


def test_what_cannot_be_published_again_stays_as_it_is() -> None:
    letters = Letters(3)
    letters.unsendable = b"1"
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, NO, NO, NO) == [Fate.DONE, Fate.FAILED, Fate.DONE]
    assert letters.reasons == [(b"1", "old"), (b"0", "today's reason"), (b"2", "today's reason")]


def test_a_queue_that_refuses_leaves_all_as_they_are() -> None:
    letters = Letters(2)
    letters.trouble = BrokerRefused("full")
    transport = opened(letters)
    batch = transport.receive(10, 0.0)
    assert settled(transport, batch, NO, Synced()) == [Fate.FAILED, Fate.DONE]
    assert letters.reasons == [(b"0", "old")]
