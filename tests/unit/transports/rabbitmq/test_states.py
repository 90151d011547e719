"""The states of a RabbitMQ consumer: the arrows of 000."""

from __future__ import annotations

import pytest

from chronicle.transports.rabbitmq.states import RABBIT, Rabbit, RabbitEvent


def test_the_states_are_those_of_the_document() -> None:
    """R-000-5."""
    assert {before for before, _ in RABBIT} | set(RABBIT.values()) == set(Rabbit)


@pytest.mark.parametrize(
    ("requirement", "before", "event", "after"),
    [
        ("R-000-6", Rabbit.CONNECTING, RabbitEvent.OPEN, Rabbit.DECLARING_QOS),
        ("R-000-7", Rabbit.CONNECTING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-8", Rabbit.DECLARING_QOS, RabbitEvent.QOS_OK, Rabbit.CONSUMING),
        ("R-000-9", Rabbit.DECLARING_QOS, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-10", Rabbit.CONSUMING, RabbitEvent.CONSUME_OK, Rabbit.DELIVERING),
        ("R-000-11", Rabbit.CONSUMING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("R-000-12", Rabbit.CONSUMING, RabbitEvent.CANCEL_OK, Rabbit.DRAINING_QUEUE),
        ("R-000-14", Rabbit.RECONNECTING, RabbitEvent.BACKOFF_EXPIRED, Rabbit.CONNECTING),
        ("R-000-15", Rabbit.SHUTTING_DOWN, RabbitEvent.CANCEL_OK, Rabbit.DRAINING_QUEUE),
        ("R-000-16", Rabbit.DRAINING_QUEUE, RabbitEvent.ALL_SETTLED, Rabbit.DISCONNECTED),
        ("R-000-27", Rabbit.DISCONNECTED, RabbitEvent.CONNECT, Rabbit.CONNECTING),
        ("R-000-41", Rabbit.DELIVERING, RabbitEvent.FAILED, Rabbit.RECONNECTING),
        ("D-10 stop", Rabbit.CONNECTING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.DECLARING_QOS, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.CONSUMING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.DELIVERING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 stop", Rabbit.RECONNECTING, RabbitEvent.STOP, Rabbit.SHUTTING_DOWN),
        ("D-10 deadline", Rabbit.SHUTTING_DOWN, RabbitEvent.DEADLINE, Rabbit.DISCONNECTED),
        ("D-10 deadline", Rabbit.DRAINING_QUEUE, RabbitEvent.DEADLINE, Rabbit.DISCONNECTED),
    ],
)
def test_arrow(requirement: str, before: Rabbit, event: RabbitEvent, after: Rabbit) -> None:
    assert RABBIT[before, event] is after, requirement


def test_idle_is_not_a_transition() -> None:
    """R-000-13 with D-10: a consumer without messages goes on delivering."""
    assert Rabbit.DISCONNECTED not in {
        after for (before, _), after in RABBIT.items() if before is Rabbit.DELIVERING
    }


def test_a_reconnecting_consumer_is_shut_down_only_by_a_stop() -> None:
    """R-000-14 with D-10: the text's arrow, not the diagram's."""
    ways = [
        event
        for (before, event), after in RABBIT.items()
        if before is Rabbit.RECONNECTING and after is Rabbit.SHUTTING_DOWN
    ]
    assert ways == [RabbitEvent.STOP]
