"""Lanes around every broker (D-23)."""

from __future__ import annotations

import json

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.lanes import Lanes
from conformance.harness import (
    BY_CONTACT,
    PATIENCE,
    Broker,
    InLanes,
    nothing_comes,
    opened,
    settle,
    take,
    verdict,
)
from support.waiting import wait_for


def test_a_lane_is_handled_in_order_through_its_retries(broker: Broker) -> None:
    """D-23: whatever the broker does with a requeue, the next of a lane waits for it; others do not."""
    queue = broker.new_queue()
    names = ["one", "one", "two", "", "one"]
    contacts = [{"contactRef": name} if name else None for name in names]
    bodies = [json.dumps({"n": n, "contact": contact}).encode() for n, contact in enumerate(contacts)]
    broker.publish(queue, bodies)
    transport = broker.make_transport(queue)
    if not isinstance(transport, Lanes):
        transport = Lanes(transport, BY_CONTACT)
    elif not isinstance(broker, InLanes):
        pytest.skip("this broker has an order of its own")
    opened(transport)
    first, two, free = take(transport, 3, room=10)
    assert [one.body for one in (first, two, free)] == [bodies[0], bodies[2], bodies[3]]
    assert nothing_comes(transport, room=7)
    assert settle(transport, verdict(first, Action.RETRY, 0.3), verdict(two, Action.ACK)) == [Fate.DONE] * 2
    assert transport.is_empty() is False
    (second,) = take(transport, 1, room=9)
    assert (second.body, second.attempts) == (bodies[0], 2)
    settle(transport, verdict(second, Action.REQUEUE))
    (third,) = take(transport, 1, room=9)
    assert (third.body, third.attempts) == (bodies[0], 3)
    assert settle(transport, verdict(third, Action.DEAD_LETTER)) in ([Fate.DONE], [Fate.REJECTED])
    (following,) = take(transport, 1, room=9)
    assert (following.body, following.attempts) == (bodies[1], 1)
    assert nothing_comes(transport)
    transport.stop(PATIENCE)  # the last of the lane goes back as it came
    assert settle(transport, verdict(following, Action.ACK), verdict(free, Action.ACK)) == [Fate.DONE] * 2
    assert nothing_comes(transport)
    transport.close()
    opened(transport)
    assert [one.body for one in take(transport, 1)] == [bodies[4]]
    assert nothing_comes(transport)
    transport.close()
    wait_for(lambda: broker.dead_letters(queue) == [bodies[0]], PATIENCE, "the dead letter")
