"""`run`, `arun` and async subscriptions on a real RabbitMQ, also several in one process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from chronicle import Ending, Event, Handle, MaxAttempts, QueueOptions, RoutingKey, arun, run, subscribe
from chronicle.engine.job import Exit
from chronicle.errors import NoSuchQueue, SyncerError
from chronicle.telemetry import events
from support.fixtures import Broker
from support.proxy import Proxy
from support.waiting import wait_for

PATIENCE: Final = 60.0
SOON: Final = MaxAttempts(3, (0.05,))


def filled(rabbit: Broker, number: int, word: str = "run") -> str:
    queue = rabbit.queues.declare(rabbit.queues.name(word))
    rabbit.queues.publish(queue, *(b'{"id": %d}' % one for one in range(number)))
    return queue


class Seen:
    """What a syncer was called with, and where."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.threads: set[int] = set()

    def sync(self, message: dict[str, Any]) -> bool:
        self.ids.append(message["id"])
        self.threads.add(threading.get_ident())
        return True

    async def sync_async(self, message: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return self.sync(message)


def process_wide() -> tuple[object, ...]:
    """What belongs to the whole process, and not to a run."""
    handlers = tuple(signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    hooks = (threading.excepthook, sys.excepthook, sys.unraisablehook)
    return (
        *handlers,
        *hooks,
        sys.getswitchinterval(),
        os.sched_getaffinity(0),
        asyncio.get_event_loop_policy(),
    )


def test_it_does_what_consume_does_and_returns_the_ending(rabbit: Broker) -> None:
    queue, seen, told = filled(rabbit, 20), Seen(), list[Event]()
    ending = run(
        rabbit.url, queue, seen.sync, schema="json", concurrency=4, until_empty=True, on_event=told.append
    )
    assert (ending.code, ending.reason, ending.counters.ack) == (Exit.DONE, "the queue is empty", 20)
    assert sorted(seen.ids) == list(range(20))
    names = [event.name for event in told]
    assert names.count(events.ACKED) == 20
    assert (names[0], names[-1]) == (events.STARTING, events.STOPPED)
    assert {event.facts["queue"] for event in told} == {queue}


def test_failures_are_endings_and_mistakes_are_errors(rabbit: Broker) -> None:
    """D-17: the message stays. What kept it from starting is raised."""
    queue = filled(rabbit, 1)
    ending = run(rabbit.url, queue, lambda _message: None, schema="json")
    assert (ending.code, rabbit.queues.depth(queue)) == (Exit.FATAL, 1)
    with pytest.raises(NoSuchQueue):
        run(rabbit.url, rabbit.queues.name("missing"), Seen().sync, schema="json")

    class Broken:
        def __call__(self, _message: object) -> bool:
            return True

        def __enter__(self) -> None:
            raise ZeroDivisionError

        def __exit__(self, *_: object) -> None: ...

    with pytest.raises(SyncerError):
        run(rabbit.url, queue, Broken, schema="json")


def test_declare_and_retry_have_the_names_of_the_command(rabbit: Broker) -> None:
    """D-2: three tries, then the dead letters."""
    queue = rabbit.queues.name("declared")
    tries: list[int] = []
    handle = Handle()

    def fail(_message: object, delivery: Any) -> bool:
        tries.append(delivery.attempts)
        if delivery.attempts == 3:
            handle.stop("seen enough")
        return False

    def begun(event: Event) -> None:
        if event.name == events.READY:
            rabbit.queues.publish(queue, b'{"id": 1}')

    ending = run(
        rabbit.url,
        queue,
        fail,
        schema="json",
        declare=True,
        on_failure="retry:3",
        retry_delay=["50ms"],
        handle=handle,
        on_event=begun,
    )
    assert (ending.code, tries) == (Exit.DONE, [1, 2, 3])
    assert rabbit.queues.depth(f"{queue}.dlq") == 1


def test_arun_runs_syncers_on_the_caller_s_loop_beside_other_tasks(rabbit: Broker) -> None:
    queue, seen = filled(rabbit, 50), Seen()

    async def main() -> tuple[Ending, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        other = asyncio.create_task(tick())
        ending = await arun(
            rabbit.url, queue, seen.sync_async, schema="json", concurrency=5, until_empty=True
        )
        other.cancel()
        return ending, ticks

    ending, ticks = asyncio.run(main())
    assert (ending.code, ending.counters.ack) == (Exit.DONE, 50)
    assert seen.threads == {threading.get_ident()}
    assert ticks > 1


def test_cancelling_arun_is_a_drain(rabbit: Broker) -> None:
    """D-11: what was begun is finished and acknowledged; the loop and its other tasks live on."""
    queue, begun, finished = filled(rabbit, 1), threading.Event(), threading.Event()

    async def slow(_message: object) -> bool:
        begun.set()
        await asyncio.sleep(0.5)
        finished.set()
        return True

    async def main() -> None:
        task = asyncio.create_task(arun(rabbit.url, queue, slow, schema="json"))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert finished.is_set()

    asyncio.run(main())
    assert rabbit.node.counts(queue) == (0, 0)


def test_two_runs_and_a_subscription_in_one_process(rabbit: Broker) -> None:
    """No global state: each has its own queue and its own end, and afterwards the process is as it was."""
    before = process_wide()
    queues = [filled(rabbit, 200, word) for word in ("one", "two")]
    seen = [Seen(), Seen()]
    syncers: list[Callable[..., Any]] = [seen[0].sync, seen[1].sync_async]
    handles = [Handle(), Handle()]
    third = rabbit.queues.name("three")
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run, rabbit.url, queue, syncer, schema="json", concurrency=8, handle=handle)
            for queue, syncer, handle in zip(queues, syncers, handles, strict=True)
        ]
        with subscribe(rabbit.url, third, RoutingKey(third, dict), QueueOptions(retry=SOON)) as messages:
            rabbit.queues.publish(third, *(b'{"id": %d}' % number for number in range(50)))
            for number, message in enumerate(messages, 1):
                message.ack()
                if number == 50:
                    break
            wait_for(lambda: len(seen[0].ids) == 200, PATIENCE, "the first run")
            handles[0].stop("first")
            assert runs[0].result(PATIENCE).reason == "first"
            wait_for(lambda: len(seen[1].ids) == 200, PATIENCE, "the second run")
            rabbit.queues.publish(queues[1], b'{"id": 200}')
            wait_for(lambda: len(seen[1].ids) == 201, PATIENCE, "the second run, beyond the first")
        handles[1].stop("second")
        endings = [one.result(PATIENCE) for one in runs]
    assert [(ending.code, ending.counters.ack) for ending in endings] == [(0, 200), (0, 201)]
    assert messages.ending is not None
    assert messages.ending.counters.ack == 50
    assert process_wide() == before


def test_a_thread_of_the_program_s_own_that_dies_ends_no_run(rabbit: Broker) -> None:
    """In a process of its own, consume ends with it (R-004-3); in a program nobody knows whose it was."""
    queue, seen, handle = filled(rabbit, 1), Seen(), Handle()
    hook, threading.excepthook = threading.excepthook, lambda _args: None

    def die() -> None:
        raise ZeroDivisionError

    def sync(message: dict[str, Any]) -> bool:
        stranger = threading.Thread(target=die)
        stranger.start()
        stranger.join()
        threading.Timer(0.6, handle.stop).start()
        return seen.sync(message)

    try:
        ending = run(rabbit.url, queue, sync, schema="json", handle=handle)
    finally:
        threading.excepthook = hook
    assert (ending.code, ending.reason) == (Exit.DONE, "asked to stop")


def test_an_async_loop_over_a_broken_connection(rabbit: Broker) -> None:
    """The same messages, retries and reconnects as a plain loop."""
    queue, told = rabbit.queues.name("async"), list[Event]()

    async def main(url: str, proxy: Proxy) -> set[int]:
        done: set[int] = set()
        async with subscribe(
            url, queue, RoutingKey(queue, dict), QueueOptions(retry=SOON), on_event=told.append
        ) as messages:
            rabbit.queues.publish(queue, *(b'{"id": %d}' % number for number in range(100)))
            async for message in messages:
                if message.value["id"] == 3 and message.attempts == 1:
                    message.nack()
                    continue
                message.ack()
                done.add(message.value["id"])
                if len(done) == 60:
                    proxy.cut()
                    while events.LOST not in [event.name for event in told]:
                        await asyncio.sleep(0.01)
                if len(done) == 100:
                    break
        return done

    with Proxy(rabbit.url) as proxy:
        assert asyncio.run(main(proxy.url_for(rabbit.url), proxy)) == set(range(100))
    wait_for(lambda: rabbit.node.counts(queue)[1] == 0, PATIENCE, "the end of the connection")


def test_a_task_that_waits_for_a_message_can_be_cancelled(rabbit: Broker) -> None:
    queue = rabbit.queues.name("cancelled")

    async def listen() -> None:
        async with subscribe(rabbit.url, queue, RoutingKey(queue, dict)) as messages:
            async for _ in messages:
                raise AssertionError("the queue is empty")

    async def main() -> None:
        task = asyncio.create_task(listen())
        while not rabbit.queues.exists(queue) or not rabbit.queues.consumers(queue):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert rabbit.queues.consumers(queue) == 0
