"""The states of a Redis consumer: the arrows of 001."""

from __future__ import annotations

import pytest

from chronicle.core.machine import Machine
from chronicle.errors import BrokerRefused, BrokerUnreachable
from chronicle.transports.redis import states
from chronicle.transports.redis.states import EVERYDAY, REDIS, Redis, RedisEvent
from chronicle.transports.seam import Closing, never, nothing

WORKING = (Redis.RECEIVING, Redis.EXECUTING, Redis.COMPLETED, Redis.IDLE)


def test_the_states_are_those_of_the_document_and_two_for_a_drain() -> None:
    """R-001-4, D-10."""
    document = {
        "Initializing", "Receiving", "Executing", "Completed", "Idle", "BuildFailed",
        "Reconnecting", "Backoff",
    }  # fmt: skip
    assert set(Redis) == document | {"Draining", "Closed"}
    assert {before for before, _ in REDIS} | set(REDIS.values()) == set(Redis)


def test_every_state_is_reached_and_left() -> None:
    reached: set[str] = {Redis.CLOSED}
    while more := {after for (before, _), after in REDIS.items() if before in reached} - reached:
        reached |= more
    assert reached == set(Redis)
    for state in Redis:
        assert any(before is state and after is not state for (before, _), after in REDIS.items()), state


def test_every_event_has_an_arrow() -> None:
    assert {event for _, event in REDIS} == set(RedisEvent)


@pytest.mark.parametrize(
    ("requirement", "before", "event", "after"),
    [
        ("R-001-5", Redis.INITIALIZING, RedisEvent.DRIVER_OK, Redis.RECEIVING),
        ("R-001-6", Redis.INITIALIZING, RedisEvent.BUILD_ERR, Redis.BUILD_FAILED),
        ("R-001-7", Redis.BUILD_FAILED, RedisEvent.RECV_ERR, Redis.RECONNECTING),
        ("R-001-8", Redis.RECEIVING, RedisEvent.DELIVERY, Redis.EXECUTING),
        ("R-001-9", Redis.RECEIVING, RedisEvent.RECV_ERR, Redis.RECONNECTING),
        ("R-001-10", Redis.EXECUTING, RedisEvent.EXEC_OK, Redis.COMPLETED),
        ("R-001-12", Redis.COMPLETED, RedisEvent.ACK_OK, Redis.IDLE),
        ("R-001-14", Redis.IDLE, RedisEvent.IDLE_TICK, Redis.RECEIVING),
        ("R-001-15", Redis.BACKOFF, RedisEvent.BACKOFF, Redis.RECONNECTING),
        ("R-001-27", Redis.COMPLETED, RedisEvent.RECV_ERR, Redis.RECONNECTING),
        ("R-001-27", Redis.RECONNECTING, RedisEvent.WAIT, Redis.BACKOFF),
        ("R-001-38", Redis.EXECUTING, RedisEvent.STOP, Redis.DRAINING),
        ("D-10 stop", Redis.BACKOFF, RedisEvent.STOP, Redis.DRAINING),
        ("D-11 settled", Redis.DRAINING, RedisEvent.SETTLED, Redis.CLOSED),
        ("D-11 deadline", Redis.DRAINING, RedisEvent.DEADLINE, Redis.CLOSED),
    ],
)
def test_arrow(requirement: str, before: Redis, event: RedisEvent, after: Redis) -> None:
    assert REDIS[before, event] is after, requirement


def test_a_stop_leads_to_draining_from_wherever_something_goes_on() -> None:
    """D-10."""
    for state in set(Redis) - {Redis.CLOSED}:
        assert REDIS[state, RedisEvent.STOP] is Redis.DRAINING


def test_D13_a_failing_syncer_has_no_way_to_a_reconnect() -> None:
    """R-001-11 with D-13: what a syncer says is a verdict; only the driver's own error reconnects."""
    ways = {
        event for (before, event), after in REDIS.items() if before in WORKING and after is Redis.RECONNECTING
    }
    assert ways == {RedisEvent.RECV_ERR}


def test_what_happens_with_every_message_is_left_to_the_debug_log() -> None:
    """R-001-39: a line per message is its verdict, not the machine's."""
    assert {event for event in RedisEvent if event not in EVERYDAY} >= {
        RedisEvent.RECV_ERR, RedisEvent.STOP, RedisEvent.DRIVER_OK, RedisEvent.BUILD_ERR, RedisEvent.WAIT
    }  # fmt: skip
    for before in WORKING:
        for event in EVERYDAY:
            assert REDIS.get((before, event), Redis.IDLE) in WORKING


def test_a_life() -> None:
    """Connected, two messages, a loss, a reconnect, a stop."""
    seen: list[str] = []
    machine = Machine(REDIS, Redis.CLOSED, lambda _before, after, _event: seen.append(after))
    assert states.opened(machine, never, lambda: 7, nothing) == 7
    states.receiving(machine)
    states.received(machine)
    states.received(machine)  # more of them while the first is in work
    states.settled(machine)
    states.settled(machine)
    states.receiving(machine)
    states.end(machine, Closing.LOST)
    states.end(machine, Closing.LOST)  # may be told twice
    states.opened(machine, never, lambda: 7, nothing)
    states.end(machine, Closing.SETTLED)
    states.end(machine, Closing.SETTLED)
    assert seen == [
        "Initializing", "Receiving", "Executing", "Completed", "Idle", "Receiving", "Reconnecting", "Backoff",
        "Reconnecting", "Initializing", "Receiving", "Draining", "Closed",
    ]  # fmt: skip


def test_a_start_that_was_refused_ends_as_well() -> None:
    machine = Machine(REDIS, Redis.CLOSED)
    gone: list[str] = []

    def attempt() -> None:
        raise BrokerRefused("no")

    with pytest.raises(BrokerRefused):
        states.opened(machine, never, attempt, lambda: gone.append("let go"))
    assert (machine.state, gone) == (Redis.BUILD_FAILED, ["let go", "let go"])
    states.end(machine, Closing.DEADLINE)
    assert machine.state == Redis.CLOSED


def test_a_start_that_was_called_off_is_no_failure() -> None:
    machine = Machine(REDIS, Redis.CLOSED)
    assert states.opened(machine, lambda: True, lambda: 7, nothing) is None
    stops = iter((False, True))

    def attempt() -> None:
        raise BrokerUnreachable("the stop ended the wait")

    states.end(machine, Closing.LOST)
    assert states.opened(machine, lambda: next(stops), attempt, nothing) is None
