"""When the mover connects: with the first message, again after a pause, without permission never more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pika import exceptions

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Failed, Verdict
from chronicle.core.settlement import Settlement
from chronicle.transports.rabbitmq import mover as module
from chronicle.transports.rabbitmq.codec.encode import encode
from chronicle.transports.rabbitmq.mover import PAUSE, Mover
from chronicle.transports.seam import Connector

ENVELOPE = encode({}, {})


class NeverOpen:
    """A connection that is being made until the test ends it."""

    fault = ""

    def __init__(self, on_end: Callable[[BaseException], None]) -> None:
        self.end = on_end

    def add_on_open_callback(self, _callback: object) -> None:
        pass


class Made:
    """Stands for the session; every connection that was begun, and what was dropped of them."""

    def __init__(self) -> None:
        self.begun: list[NeverOpen] = []
        self.dropped: list[NeverOpen] = []

    def start(self, _parameters: object, on_end: Callable[[BaseException], None]) -> NeverOpen:
        self.begun.append(NeverOpen(on_end))
        return self.begun[-1]

    def drop(self, connection: NeverOpen) -> None:
        self.dropped.append(connection)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of one, so that a test can move it."""
    time = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def made() -> Made:
    return Made()


@pytest.fixture
def mover(made: Made, now: list[float]) -> Mover:
    session: Any = made
    return Mover(Connector("amqp://h/", "orders"), session)


def move(mover: Mover, tag: int) -> None:
    delivery = Delivery(b"", queue="orders", transport="rabbitmq")
    mover.move(tag, ENVELOPE, Settlement(delivery, Failed(), Verdict(Action.DEAD_LETTER, "why")))


def reported(mover: Mover) -> list[tuple[int, str]]:
    return [(one.tag, one.failure) for one in mover.moved()]


def test_after_a_lost_connection_the_next_message_opens_another(
    made: Made, mover: Mover, now: list[float]
) -> None:
    """Rule 4: what comes too soon waits; what was under way is reported, for it may have arrived."""
    move(mover, 1)
    move(mover, 2)
    (first,) = made.begun
    first.end(exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"))
    said = "the broker said 320 CONNECTION_FORCED"
    assert reported(mover) == [(1, said), (2, said)]
    assert made.dropped == [first]
    mover.look()
    move(mover, 3)
    mover.look()
    assert made.begun == [first]
    now[0] += PAUSE
    mover.look()
    assert len(made.begun) == 2
    assert reported(mover) == []


def test_the_end_of_a_connection_that_was_given_up_concerns_nobody(
    made: Made, mover: Mover, now: list[float]
) -> None:
    """Rule 4: the next one has begun by then, and something waits for it."""
    move(mover, 1)
    made.begun[0].fault = "a frame without its end"
    mover.look()
    assert reported(mover) == [(1, "what the broker sent cannot be read")]
    now[0] += PAUSE
    move(mover, 2)
    made.begun[0].end(exceptions.StreamLostError("hung up"))
    assert reported(mover) == []
    assert 2 in mover


def test_without_the_permission_no_connection_is_made_any_more(
    made: Made, mover: Mover, now: list[float]
) -> None:
    """Rule 4: nobody but the operator can change that."""
    move(mover, 1)
    made.begun[0].end(exceptions.ChannelClosedByBroker(403, "ACCESS_REFUSED"))
    now[0] += PAUSE
    move(mover, 2)
    mover.look()
    denied = "this user may not publish to the default exchange"
    assert reported(mover) == [(1, denied), (2, denied)]
    assert len(made.begun) == 1
