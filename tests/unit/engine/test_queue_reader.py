"""Reading without an engine: the wait for the broker, and how a reader is closed in every case."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.engine.queue_reader import reading
from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, SettingError
from chronicle.transports.seam import Closing, Outgoing


class StubReader:
    """A reader that writes down how it was closed."""

    transport = "stub"
    place = "nowhere"
    present = 0
    moves = False

    def __init__(self, *refusals: Exception, closing: Exception | None = None) -> None:
        self.notices: deque[Notice] = deque()
        self.closed: list[Closing] = []
        self._refusals = list(refusals)
        self._closing = closing

    def open(self, stopping: Callable[[], bool]) -> None:
        if self._refusals and not stopping():
            raise self._refusals.pop(0)

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None: ...

    def remove(self, batch: Sequence[Delivery]) -> None: ...

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        raise NotImplementedError

    def serve(self, timeout: float = 0.0) -> None: ...

    def stop(self, patience: float) -> None: ...

    def wake(self) -> None: ...

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self.closed.append(why)
        self.notices.append(Notice("n", logging.INFO, f"closed {why}"))
        closing, self._closing = self._closing, None
        if closing is not None:
            raise closing


@pytest.mark.parametrize(
    ("raised", "how"),
    [
        (ConnectionLost("gone"), Closing.LOST),
        (OSError("disk full"), Closing.SETTLED),
        (KeyboardInterrupt(), Closing.DEADLINE),
    ],
    ids=["lost", "failed", "killed"],
)
def test_it_is_closed_for_the_right_reason_and_the_error_goes_on(raised: BaseException, how: Closing) -> None:
    reader = StubReader()
    with pytest.raises(type(raised)), reading(reader, 0.01, print):
        raise raised
    assert reader.closed == [how]


def test_its_last_words_are_told() -> None:
    told: list[str] = []
    reader = StubReader()
    with reading(reader, 0.01, told.append):
        pass
    assert (reader.closed, told) == ([Closing.SETTLED], ["closed settled"])


def test_what_a_close_raises_is_told_unless_something_worse_is_under_way() -> None:
    with (
        pytest.raises(SettingError, match="worn"),
        reading(StubReader(closing=SettingError("worn")), 0.01, print),
    ):
        pass
    with (
        pytest.raises(OSError, match="full"),
        reading(StubReader(closing=SettingError("worn")), 0.01, print),
    ):
        raise OSError("disk full")


def test_D_9_an_absent_broker_is_tried_again_and_one_that_refuses_is_not() -> None:
    told: list[str] = []
    absent = StubReader(BrokerUnreachable("away"))
    with reading(absent, 5.0, told.append):
        pass
    assert absent.closed == [Closing.LOST, Closing.SETTLED]
    assert told[0] == "away; trying again"
    with pytest.raises(BrokerRefused), reading(StubReader(BrokerRefused("no")), 5.0, print):
        pass


def test_a_stop_ends_the_wait_for_an_absent_broker() -> None:
    stops = iter([False, False])
    absent = StubReader(*[BrokerUnreachable("away")] * 1000)
    with reading(absent, 0.0, lambda _: None, lambda: next(stops, True)):
        pass
    assert absent.closed[-1] is Closing.SETTLED
