"""How long a broker is waited for, and when it is given up (D-6, D-9, RB13, RB19). The clock is passed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chronicle.core.backoff import Backoff
from chronicle.engine.job import Lifecycle
from chronicle.engine.reconnect import FAULT_LIMIT, HEALTHY, Patience, reach
from chronicle.errors import BrokerUnreachable, ConnectionLost, ProtocolFault

OWN = Backoff(1.0, 8.0)  # the transport's
LOST = ConnectionLost("gone")


def make(lifecycle: Lifecycle | None = None, luck: float = 1.0) -> Patience:
    return Patience(lifecycle or Lifecycle(startup_timeout=0), OWN, lambda: luck, now=0)


def test_D_6_the_transports_own_backoff_unless_the_operator_has_another() -> None:
    assert [make().failed(now=0)] == [1.0]
    assert make(Lifecycle(backoff=Backoff(3.0, 3.0))).failed(now=0) == 3.0


def test_R_000_24_the_wait_grows_and_the_tries_are_counted() -> None:
    patience = make()
    assert [patience.failed(now) for now in range(5)] == [1, 2, 4, 8, 8]
    assert patience.tries == 5


class TestStart:
    def test_D_9_it_is_tried_until_the_startup_timeout(self) -> None:
        patience = make(Lifecycle(startup_timeout=60))
        assert patience.failed(now=59) == 1.0
        assert patience.failed(now=60) is None

    def test_the_last_wait_ends_with_the_timeout_and_is_followed_by_a_last_try(self) -> None:
        patience = make(Lifecycle(startup_timeout=60, backoff=Backoff(20, 20)))
        assert patience.failed(now=55) == 5.0

    def test_a_try_that_led_to_a_connection_is_never_too_long(self) -> None:
        """A transport keeps the question and asks it again when a broker is slow later on."""
        patience = make(Lifecycle(startup_timeout=5, give_up_after=5))
        too_late = patience.try_from(0)
        assert too_late(5)
        patience.connected(now=3)
        assert not too_late(500)
        patience.lost(LOST, now=600)
        assert not patience.try_from(600)(604)
        assert patience.try_from(600)(605)

    def test_an_attempt_that_can_be_called_off_ends_with_the_time(self) -> None:
        """D-9: but one that begins late is entitled to a moment."""
        answers: list[list[bool]] = []

        def attempt(too_late: Callable[[], bool]) -> None:
            answers.append([too_late(), too_late()])
            raise BrokerUnreachable("nobody answers")

        # The start; a try, its two questions and its failure just before the end; the same once more, later.
        times = iter([0.0, 0.0, 57.0, 58.0, 59.9, 60.0, 60.5, 61.0, 61.0])
        with pytest.raises(BrokerUnreachable):
            reach(attempt, 60.0, lambda _: None, clock=lambda: next(times), sleep=lambda _: None)
        assert answers == [[False, False], [False, True]]

        times = iter([0.0, 0.0, 59.0, 60.0])
        asked = reach(
            lambda too_late: [too_late(), too_late()], 60.0, lambda _: None, clock=lambda: next(times)
        )
        assert asked == [False, True]

    def test_D_9_zero_means_for_ever(self) -> None:
        patience = make(Lifecycle(startup_timeout=0))
        assert patience.failed(now=10**9) == 1.0


class TestAfterwards:
    def connected(self, lifecycle: Lifecycle | None = None) -> Patience:
        patience = make(lifecycle)
        patience.connected(now=0)
        return patience

    def test_D_9_once_connected_it_reconnects_for_ever(self) -> None:
        patience = self.connected(Lifecycle(startup_timeout=1))
        patience.lost(LOST, now=5)
        assert patience.failed(now=10**6) is not None

    def test_unless_it_is_told_to_give_up(self) -> None:
        patience = self.connected(Lifecycle(give_up_after=30))
        patience.lost(LOST, now=100)
        assert patience.failed(now=129) == 1.0
        assert patience.failed(now=130) is None

    def test_D_6_RB19_a_connection_that_settled_something_starts_the_backoff_anew(self) -> None:
        patience = self.connected()
        for now in range(3):
            patience.failed(now)
        patience.progressed()
        assert patience.lost(LOST, now=4) == 1.0

    def test_so_does_one_that_lived(self) -> None:
        patience = self.connected()
        for _ in range(3):
            patience.failed(now=0)
        patience.connected(now=0)
        assert patience.lost(LOST, now=HEALTHY) == 1.0

    def test_RB19_one_that_dies_at_once_does_not(self) -> None:
        """A broker that accepts and closes is not asked four times a second."""
        patience = make()
        waits = []
        for now in range(4):
            patience.connected(now)
            waits.append(patience.lost(LOST, now))
        assert waits == [1, 2, 4, 8]

    def test_it_knows_how_long_the_broker_is_away(self) -> None:
        patience = make()
        assert patience.away(now=7) == 7
        patience.connected(now=7)
        patience.lost(LOST, now=100)
        assert patience.away(now=103) == 3


class TestUnreadable:
    """RB13: bytes that nobody here can read come again after every reconnect."""

    def lose(
        self, patience: Patience, error: ConnectionLost, times: int, *, delivering: bool = False
    ) -> None:
        for _ in range(times):
            patience.connected(now=0)
            if delivering:
                patience.progressed()
            patience.lost(error, now=0)

    def test_five_in_a_row_are_enough(self) -> None:
        patience = make()
        self.lose(patience, ProtocolFault("?"), FAULT_LIMIT - 1)
        assert not patience.unreadable
        self.lose(patience, ProtocolFault("?"), 1)
        assert patience.unreadable

    def test_a_delivery_or_another_loss_between_them_starts_the_count_anew(self) -> None:
        patience = make()
        self.lose(patience, ProtocolFault("?"), FAULT_LIMIT - 1)
        self.lose(patience, LOST, 1)
        self.lose(patience, ProtocolFault("?"), FAULT_LIMIT - 1)
        self.lose(patience, ProtocolFault("?"), FAULT_LIMIT, delivering=True)
        assert not patience.unreadable

    def test_tries_that_end_unreadable_count_too(self) -> None:
        """The nonsense may come with the last answer of opening, so that no connection ever stands."""
        patience = make()
        self.lose(patience, LOST, 1, delivering=True)
        for _ in range(FAULT_LIMIT):
            assert not patience.unreadable
            patience.saw(ProtocolFault("?"))
        assert patience.unreadable
        patience.saw(LOST)
        assert not patience.unreadable
