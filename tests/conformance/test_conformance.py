"""What every transport does, whatever the broker: the seam's promises, one case each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import BrokerRefused, ConnectionLost
from chronicle.transports.seam import Closing, DeadLetterKeeper, Transport
from conformance.harness import PATIENCE, Broker, await_fates, nothing_comes, opened, settle, take, verdict
from support.waiting import wait_for

Consume = Callable[[str], Transport]

BODIES = {
    "empty": b"",
    "text": b'{"schema": "proca:action:2"}',
    "invalid UTF-8": b"\xff\xfe\x80 not text",
    "nul bytes": b"\0\0a\0",
    "1 MiB": bytes(range(256)) * 4096,
}


def test_delivers_in_order_and_byte_for_byte(broker: Broker, consume: Consume) -> None:
    """R-000-28, Z6."""
    queue = broker.new_queue(ordered=True)
    bodies = [*BODIES.values(), *(b"%d" % n for n in range(30))]
    broker.publish(queue, bodies)
    transport = consume(queue)
    got: list[bytes] = []
    while len(got) < len(bodies):
        batch = take(transport, min(10, len(bodies) - len(got)))
        got += [delivery.body for delivery in batch]
        assert not any(delivery.redelivered for delivery in batch)
        assert {delivery.queue for delivery in batch} == {queue}
        assert {delivery.attempts for delivery in batch} == {1}
        settle(transport, *(verdict(delivery, Action.ACK) for delivery in batch))
    assert got == bodies


@pytest.mark.parametrize("room", [1, 3])
def test_never_more_than_there_is_room_for(broker: Broker, consume: Consume, room: int) -> None:
    """R-000-38, D-7, X7."""
    queue = broker.new_queue()
    broker.publish(queue, [b"x"] * 5)
    transport = consume(queue)
    assert nothing_comes(transport, room=0, turns=3)
    seen = 0

    def all_seen() -> bool:
        nonlocal seen
        batch = transport.receive(room, 0.05)
        assert len(batch) <= room
        seen += len(batch)
        return seen == 5

    wait_for(all_seen, PATIENCE, "all five", every=0)


@pytest.mark.parametrize("action", [Action.ACK, Action.DROP])
def test_an_acknowledged_or_dropped_message_is_gone(broker: Broker, consume: Consume, action: Action) -> None:
    """R-000-31, R-004-14."""
    queue = broker.new_queue()
    broker.publish(queue, [b"a", b"b"])
    transport = consume(queue)
    batch = take(transport, 2)
    assert settle(transport, *(verdict(d, action) for d in batch)) == [Fate.DONE, Fate.DONE]
    transport.close()
    opened(transport)
    assert nothing_comes(transport)
    assert broker.dead_letters(queue) == [] or transport.promises.dead_letters is DeadLetterKeeper.NOBODY


def test_a_requeued_message_comes_back_once_and_flagged(broker: Broker, consume: Consume) -> None:
    """R-004-33."""
    queue = broker.new_queue()
    broker.publish(queue, [b"again"])
    transport = consume(queue)
    (first,) = take(transport, 1)
    assert settle(transport, verdict(first, Action.REQUEUE)) == [Fate.DONE]
    (second,) = take(transport, 1)
    assert (second.body, second.redelivered) == (b"again", True)
    assert second.attempts == 2
    assert nothing_comes(transport)
    settle(transport, verdict(second, Action.ACK))
    assert nothing_comes(transport)


def test_tries_are_counted_where_that_is_promised(broker: Broker, consume: Consume) -> None:
    """D-2."""
    queue = broker.new_queue()
    broker.publish(queue, [b"again"])
    transport = consume(queue)
    if not transport.promises.counts:
        pytest.skip("this broker counts nothing")
    for tries in range(4):
        (delivery,) = take(transport, 1)
        assert (delivery.counted, delivery.attempts) == (tries, tries + 1)
        settle(transport, verdict(delivery, Action.REQUEUE))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_dead_letter_is_byte_identical(broker: Broker, consume: Consume, body: bytes) -> None:
    """Z6, D-21."""
    queue = broker.new_queue()
    broker.publish(queue, [body])
    transport = consume(queue)
    if transport.promises.dead_letters is DeadLetterKeeper.NOBODY:
        pytest.skip("no dead letters here")
    (delivery,) = take(transport, 1)
    # D-22: a broker that moves it itself does not say so.
    assert settle(transport, verdict(delivery, Action.DEAD_LETTER)) in ([Fate.DONE], [Fate.REJECTED])
    assert nothing_comes(transport)
    wait_for(lambda: broker.dead_letters(queue) == [body], PATIENCE, "the dead letter")


def test_a_message_left_alone_is_given_back_at_close(broker: Broker, consume: Consume) -> None:
    """D-11, D-17."""
    queue = broker.new_queue()
    broker.publish(queue, [b"left", b"untouched"])
    transport = consume(queue)
    left, _ = take(transport, 2)
    transport.settle([verdict(left, Action.LEAVE)])
    assert nothing_comes(transport)
    transport.close()
    opened(transport)
    assert sorted(delivery.body for delivery in take(transport, 2)) == [b"left", b"untouched"]


def test_a_verdict_from_an_earlier_connection_is_stale(broker: Broker, consume: Consume) -> None:
    """RB2: it must not settle the message that now has the same name."""
    queue = broker.new_queue()
    broker.publish(queue, [b"one"])
    transport = consume(queue)
    (early,) = take(transport, 1)
    transport.close()
    assert [s.fate for s in transport.settle([verdict(early, Action.ACK)])] == [Fate.STALE]
    opened(transport)
    (late,) = take(transport, 1)
    for action in Action:
        assert settle(transport, verdict(early, action)) == [Fate.STALE]
    assert settle(transport, verdict(late, Action.ACK)) == [Fate.DONE]
    transport.close()
    opened(transport)
    assert nothing_comes(transport)


def test_an_unknown_queue_is_refused_with_a_remedy(broker: Broker) -> None:
    """D-9."""
    if not broker.misses_queues:
        pytest.skip("every queue is known here")
    unknown = f"{broker.new_queue()}.nobody-made-this"
    transport = broker.make_transport(unknown)
    with pytest.raises(BrokerRefused) as refused:
        opened(transport)
    assert unknown in refused.value.problem
    assert refused.value.remedy
    transport.close()


def test_whether_anything_waits(broker: Broker, consume: Consume) -> None:
    """`--until-empty`: the broker's own word."""
    queue = broker.new_queue()
    broker.publish(queue, [b"x"] * 7)
    transport = consume(queue)
    if transport.is_empty() is None:
        pytest.skip("this broker does not tell")
    batch = take(transport, 7)
    settle(transport, *(verdict(delivery, Action.ACK) for delivery in batch))
    wait_for(lambda: bool(transport.is_empty()), PATIENCE, "an empty queue")


def test_after_stop_nothing_new_comes_and_settling_goes_on(broker: Broker, consume: Consume) -> None:
    """R-000-25, R-000-26, D-11."""
    queue = broker.new_queue()
    broker.publish(queue, [b"held", b"also held"] + [b"too late"] * (not broker.live))
    transport = consume(queue)
    held = take(transport, 2)
    transport.stop(PATIENCE)
    if broker.live:
        broker.publish(queue, [b"too late"])
    assert nothing_comes(transport)
    assert settle(transport, *(verdict(d, Action.ACK) for d in held)) == [Fate.DONE, Fate.DONE]
    transport.close()
    opened(transport)
    assert [delivery.body for delivery in take(transport, 1)] == [b"too late"]


def test_wake_ends_a_wait(broker: Broker, consume: Consume) -> None:
    """Seam: a finished syncer does not wait for the broker."""
    transport = consume(broker.new_queue())
    asleep = threading.Event()

    def ring() -> None:
        asleep.wait()
        transport.wake()

    ringer = threading.Thread(target=ring)
    ringer.start()
    asleep.set()
    started = time.monotonic()
    batch: Sequence[Delivery] = transport.receive(1, 600)
    ringer.join()
    assert not batch
    assert time.monotonic() - started < 300, "the wait ran to its end"


def test_a_ring_before_the_wait_is_not_lost(broker: Broker, consume: Consume) -> None:
    transport = consume(broker.new_queue())
    transport.wake()
    started = time.monotonic()
    assert not transport.receive(1, 600)
    assert time.monotonic() - started < 300


def test_a_delayed_requeue_keeps_its_time(broker: Broker, consume: Consume) -> None:
    """D-1, D-2: a delay is a delay also for the broker."""
    queue = broker.new_queue(ordered=True)
    broker.publish(queue, [b"later", b"now"])
    transport = consume(queue)
    if not transport.promises.delays:
        pytest.skip("the engine keeps delays for this broker")
    later, now = take(transport, 2)
    started = time.monotonic()
    settle(transport, verdict(later, Action.REQUEUE, delay=0.4), verdict(now, Action.REQUEUE))
    assert take(transport, 1)[0].body == b"now"
    assert transport.is_empty() in (False, None)
    (back,) = take(transport, 1)
    assert back.body == b"later"
    assert time.monotonic() - started >= 0.39


def test_two_consumers_share_a_queue_without_overlap(broker: Broker, consume: Consume) -> None:
    if not broker.shares:
        pytest.skip("one consumer, or each gets everything")
    queue = broker.new_queue()
    bodies = [b"%d" % n for n in range(40)]
    one, other = consume(queue), consume(queue)
    broker.publish(queue, bodies)
    got: list[bytes] = []

    def all_here() -> bool:
        for transport in (one, other):
            batch = transport.receive(4, 0.02)
            got.extend(delivery.body for delivery in batch)
            settle(transport, *(verdict(delivery, Action.ACK) for delivery in batch))
        return len(got) >= len(bodies)

    wait_for(all_here, PATIENCE, "all messages", every=0)
    assert sorted(got) == sorted(bodies)


def lose_connection(broker: Broker, transport: Transport) -> None:
    """Cut it off, wait until it says so, and open it again, unless it does that by itself."""
    if broker.lose_connection is None:
        pytest.skip("nothing to lose")
    broker.lose_connection(transport)
    if broker.reconnects:
        return

    def told() -> bool:
        try:
            transport.receive(1, 0.05)
        except ConnectionLost:
            return True
        return False

    wait_for(told, PATIENCE, "the loss to be told", every=0)
    transport.close(Closing.LOST)
    opened(transport)


def outlives_a_loss(broker: Broker, transport: Transport) -> bool:
    """Whether what was received before a loss may be settled after it."""
    return broker.reconnects or transport.promises.late_results


def test_a_lost_connection_is_told_and_the_message_comes_again(broker: Broker, consume: Consume) -> None:
    """R-000-41: unless a late verdict still counts, and then nothing comes twice."""
    queue = broker.new_queue()
    broker.publish(queue, [b"precious"])
    transport = consume(queue)
    (held,) = take(transport, 1)
    lose_connection(broker, transport)
    if outlives_a_loss(broker, transport):
        assert nothing_comes(transport)
        return
    assert settle(transport, verdict(held, Action.ACK)) == [Fate.STALE]
    assert [delivery.body for delivery in take(transport, 1)] == [b"precious"]


@pytest.mark.parametrize("action", [Action.ACK, Action.DROP, Action.REQUEUE, Action.DEAD_LETTER])
def test_a_late_verdict_counts_where_that_is_promised(
    broker: Broker, consume: Consume, action: Action
) -> None:
    """Seam: what was received before a loss is settled after it, once, like anything else."""
    queue = broker.new_queue()
    broker.publish(queue, [b"precious"])
    transport = consume(queue)
    if not outlives_a_loss(broker, transport):
        pytest.skip("what a lost connection held comes again")
    (held,) = take(transport, 1)
    for _ in range(2):
        lose_connection(broker, transport)
    broker.publish(queue, [b"next"])
    (after,) = take(transport, 1)
    assert after.body == b"next"
    assert settle(transport, verdict(held, action), verdict(after, Action.ACK)) == [Fate.DONE, Fate.DONE]
    if action is Action.REQUEUE:
        (again,) = take(transport, 1)
        assert (again.body, again.attempts) == (b"precious", 2)
        settle(transport, verdict(again, Action.ACK))
    transport.close()
    opened(transport)
    assert nothing_comes(transport)
    dead = [b"precious"] if action is Action.DEAD_LETTER else []
    assert broker.dead_letters(queue) == dead


def test_verdicts_that_a_loss_overtook_are_carried_out_once(broker: Broker, consume: Consume) -> None:
    """Seam: whether the broker had them or not, nothing comes again and no dead letter is doubled."""
    queue = broker.new_queue(ordered=True)
    broker.publish(queue, [b"ack", b"dead"])
    transport = consume(queue)
    if not outlives_a_loss(broker, transport):
        pytest.skip("what a lost connection held comes again")
    acked, dead = take(transport, 2)
    work = [verdict(acked, Action.ACK), verdict(dead, Action.DEAD_LETTER)]
    final = transport.settle(work)
    lose_connection(broker, transport)
    if broker.reconnects:
        assert set(await_fates(transport, work, final)) == {Fate.DONE}
    else:
        again = [one for one in work if one.fate is Fate.OPEN]  # as the engine does it
        assert set(settle(transport, *again)) <= {Fate.DONE}
    assert nothing_comes(transport)
    transport.close()
    opened(transport)
    assert nothing_comes(transport)
    assert broker.dead_letters(queue) == [b"dead"]


def test_close_may_be_called_at_any_time(broker: Broker) -> None:
    transport = broker.make_transport(broker.new_queue())
    transport.close()
    opened(transport)
    transport.close()
    transport.close()
    transport.wake()


def test_it_tells_how_many_wait(broker: Broker, consume: Consume) -> None:
    """What waits at the broker now, as last heard; what is held here is not among it."""
    queue = broker.new_queue()
    broker.publish(queue, [b"x"] * 25)
    transport = consume(queue)
    assert 15 <= (transport.depth or 0) <= 25  # the window of some is filled at once
    for _ in range(5):
        batch = take(transport, 5)
        settle(transport, *(verdict(delivery, Action.ACK) for delivery in batch))
    wait_for(lambda: says(transport) == 0, PATIENCE, "an empty queue", every=0)
    if broker.live:
        broker.publish(queue, [b"y"] * 30)
        wait_for(
            lambda: 20 <= (says(transport) or 0) <= 30, PATIENCE, "what was published meanwhile", every=0
        )
    transport.close()
    assert transport.depth is None or transport.depth >= 0  # nobody can ask any more, and it does not raise


def says(transport: Transport) -> int | None:
    """The depth, after a turn in which the broker may have answered."""
    depth = transport.depth
    assert not transport.receive(0, 0.05)
    return depth
