"""A subscription, on the broker in memory: what the loop and its messages may do, and are told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chronicle import (
    AlreadySettled,
    DeadLetter,
    Event,
    Message,
    MessageGone,
    RoutingKey,
    Subscription,
    SubscriptionFailed,
    run,
    subscribe,
)
from chronicle.errors import BrokerUnreachable
from chronicle.library import subscription
from chronicle.telemetry import events
from chronicle.testing import MemoryBroker
from support.proca_messages import CANARY
from support.waiting import wait_for

KEY = RoutingKey("q", dict)


def fed(number: int) -> MemoryBroker:
    broker = MemoryBroker()
    broker.publish("q", *({"id": one} for one in range(number)))
    return broker


def open_on(broker: MemoryBroker, **settings: Any) -> Subscription[dict[Any, Any]]:
    return subscribe(broker, "q", KEY, **settings)


def test_messages_may_be_settled_in_any_order_and_on_any_thread() -> None:
    broker, done = fed(500), list[int]()
    with open_on(broker, until_empty=True, prefetch=8) as messages, ThreadPoolExecutor(4) as pool:
        for message in messages:
            done.append(message.value["id"])
            pool.submit(message.ack)
    assert (done, broker.waiting("q")) == (list(range(500)), 0)


def test_several_threads_may_share_the_loop() -> None:
    broker, done = fed(500), list[int]()
    with open_on(broker, until_empty=True) as messages:

        def work() -> None:
            for message in messages:
                done.append(message.value["id"])
                message.ack()

        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                pool.submit(work)
    assert sorted(done) == list(range(500))


def test_of_many_threads_exactly_one_settles_a_message() -> None:
    broker = fed(50)
    with open_on(broker, until_empty=True) as messages, ThreadPoolExecutor(8) as pool:
        for message in messages:
            tries = [pool.submit(message.ack) for _ in range(8)]
            errors = [one.exception() for one in tries]
            assert sum(error is None for error in errors) == 1
            assert {type(error) for error in errors if error} == {AlreadySettled}
    assert messages.ending is not None
    assert messages.ending.counters.ack == 50


def test_no_more_than_the_window_is_taken_and_a_loop_that_waits_for_itself_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-7: never a silent wait."""
    monkeypatch.setattr(subscription, "PATIENCE", 0.05)
    broker, told = fed(10), list[Event]()
    with open_on(broker, prefetch=3, on_event=told.append) as messages:
        held = [next(messages) for _ in range(3)]
        waiting = threading.Thread(target=lambda: held.append(next(messages)))
        waiting.start()
        wait_for(lambda: subscription.WAITS_FOR_ITSELF in [event.name for event in told], 30, "the warning")
        assert broker.waiting("q") == 7
        held[0].ack()
        waiting.join(30)
        assert held[3].value == {"id": 3}


@pytest.mark.parametrize("bound", [{"until_empty": True}, {"idle_timeout": 0.1}], ids=["empty", "idle"])
def test_a_loop_whose_end_waits_for_what_it_has_not_settled_is_told(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any]
) -> None:
    """D-7: never a silent wait; it is told once."""
    monkeypatch.setattr(subscription, "PATIENCE", 0.05)
    broker, told = fed(2), list[Event]()

    def waits() -> list[Event]:
        return [event for event in told if event.name == subscription.END_WAITS]

    with open_on(broker, on_event=told.append, **bound) as messages:
        forgotten = next(messages)
        next(messages).ack()
        rest = threading.Thread(target=lambda: list(messages))
        rest.start()
        wait_for(waits, 30, "the warning")
        rest.join(0.3)
        assert rest.is_alive()
        forgotten.ack()
        rest.join(30)
    (warning,) = waits()
    assert (warning.level, warning.facts["unsettled"]) == (logging.WARNING, 1)
    assert next(iter(bound)) in warning.text


def test_an_idle_time_that_is_not_over_is_no_reason_to_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for what is unsettled yet."""
    monkeypatch.setattr(subscription, "PATIENCE", 0.01)
    broker, told = fed(1), list[Event]()
    with open_on(broker, on_event=told.append, idle_timeout=60) as messages:
        next(messages)
        rest = threading.Thread(target=lambda: list(messages))
        rest.start()
        rest.join(0.3)
        messages.stop()
        rest.join(30)
    assert subscription.END_WAITS not in [event.name for event in told]


def test_stop_lets_the_loop_end_after_the_message_it_has() -> None:
    broker, done = fed(100), list[int]()
    with open_on(broker) as messages:
        for message in messages:
            done.append(message.value["id"])
            if len(done) == 5:
                messages.stop("enough")
            message.ack()
    assert (done, broker.waiting("q")) == ([0, 1, 2, 3, 4], 95)
    assert messages.ending is not None
    assert messages.ending.reason.startswith("enough")


@pytest.mark.parametrize("settle", [lambda m: m.ack(), lambda m: m.nack(), lambda m: m.reject("late")])
def test_a_message_of_a_lost_connection_says_so_and_comes_again(settle: Callable[[Any], None]) -> None:
    """RB2."""
    broker = fed(1)
    with open_on(broker) as messages:
        message = next(messages)
        broker.cut("q")
        again = next(messages)
        with pytest.raises(MessageGone):
            settle(message)
        assert (again.value, again.attempts) == (message.value, 2)
        again.ack()
    assert broker.dead_letters("q") == ()


def test_a_reason_is_masked_before_it_is_told_or_written() -> None:
    """D-21, Z4."""
    broker, told = MemoryBroker(), list[Event]()
    broker.publish("q", {"email": CANARY}, {"email": CANARY})
    with open_on(broker, until_empty=True, on_event=told.append) as messages:
        next(messages).reject(f"no such address: {CANARY}")
        for message in messages:
            message.nack(f"bounced: {CANARY}")
    assert len(broker.dead_letters("q")) == 2
    assert CANARY not in f"{[letter.reason for letter in broker.dead_letters('q')]}{told}"


def test_a_message_shows_no_content() -> None:
    broker = MemoryBroker()
    broker.publish("q", {"email": CANARY})
    with open_on(broker) as messages:
        assert CANARY not in repr(next(messages))


def test_a_decoder_may_raise_what_it_likes() -> None:
    """pydantic's errors quote the input: only their name is told."""

    def decode(message: dict[str, Any]) -> int:
        raise ValueError(message)

    broker = MemoryBroker()
    broker.publish("q", {"email": CANARY})
    with subscribe(broker, "q", RoutingKey("q", decode), until_empty=True) as messages:
        assert list(messages) == []
    (letter,) = broker.dead_letters("q")
    assert letter.reason.endswith("decode: ValueError")


def test_it_is_used_in_its_block_and_once() -> None:
    messages = open_on(fed(1), until_empty=True)
    with pytest.raises(RuntimeError, match="inside its block"):
        iter(messages)
    with messages:
        next(messages).ack()
        assert list(messages) == []
    with pytest.raises(RuntimeError, match="subscribe again"), messages:
        pass


def test_what_ends_it_before_its_time_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, held = fed(1), list[Message[Any]]()

    def refuse(*_: object) -> None:
        raise BrokerUnreachable("nobody is there")

    def loop() -> None:
        with open_on(broker, give_up_after=0.05) as messages:
            held.append(next(messages))
            monkeypatch.setattr("chronicle.transports.memory_broker.QueueTransport.open", refuse)
            broker.cut("q")
            list(messages)

    with pytest.raises(SubscriptionFailed, match="given up"):
        loop()
    with pytest.raises(MessageGone):
        held[0].ack()


def test_what_a_listener_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """And is told without its text, which may quote anything."""

    def listen(event: Event) -> None:
        raise ValueError(CANARY)

    broker = fed(3)
    with open_on(broker, until_empty=True, on_event=listen) as messages:
        for message in messages:
            message.ack()
    assert broker.waiting("q") == 0
    assert "on_event raised ValueError for message.acked" in caplog.text
    assert CANARY not in caplog.text


def test_without_a_listener_the_logger_is_told_but_not_of_acks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = fed(2)
    with caplog.at_level(logging.WARNING, "chronicle"), open_on(broker) as messages:
        next(messages).ack()
        next(messages).reject("no")
        wait_for(lambda: broker.dead_letters("q"), 30, "the dead letter")
        broker.publish("q", {"id": 3})
        next(messages)  # is given back, which is everyday for a loop
    (record,) = [one for one in caplog.records if one.name == "chronicle"]
    event: Event = record.__dict__["event"]
    assert (event.name, event.facts["reason"]) == (events.DEAD_LETTERED, "no")


def test_a_loop_and_a_run_on_one_queue_share_its_messages() -> None:
    broker, done = fed(40), list[int]()

    def sync(message: dict[str, Any]) -> bool:
        done.append(message["id"])
        return True

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, broker, "q", sync, schema="json", until_empty=True)
        with open_on(broker, until_empty=True) as messages:
            for message in messages:
                done.append(message.value["id"])
                message.ack()
        assert other.result(60).code == 0
    assert sorted(done) == list(range(40))


def test_asking_for_a_verdict_by_raising_is_for_syncers() -> None:
    """In a loop, an error is an error: it ends the block, and the message is given back."""
    broker = fed(1)

    def loop() -> None:
        with open_on(broker) as messages:
            for _ in messages:
                raise DeadLetter("not here")

    with pytest.raises(DeadLetter):
        loop()
    assert (broker.waiting("q"), broker.dead_letters("q")) == (1, ())


def test_other_tasks_have_their_turn_beside_a_busy_loop() -> None:
    broker = fed(2_000)

    async def main() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        async with open_on(broker, until_empty=True, prefetch=1_000) as messages:
            async for message in messages:
                message.ack()
        task.cancel()
        return turns

    assert asyncio.run(main()) >= 2_000 // subscription.FAIRNESS


@pytest.mark.parametrize("steps", range(5))
def test_a_loop_can_be_cancelled_at_any_moment(steps: int) -> None:
    """Also just when it is told that there is a message: it must not go on as if nothing had been asked."""

    async def work() -> None:
        async with open_on(fed(0)) as subscription:

            async def loop() -> None:
                async for message in subscription:
                    message.ack()

            task = asyncio.create_task(loop())
            await asyncio.sleep(0.05)
            subscription._hands.bell()
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=5)
            assert done
            assert task.cancelled()

    asyncio.run(work())
