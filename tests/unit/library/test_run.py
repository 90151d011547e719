"""`run` and `arun` on the broker in memory: handles, loops and threads."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from chronicle import Event, Handle, arun, run
from chronicle.engine.job import Exit
from chronicle.telemetry import events
from chronicle.testing import MemoryBroker


def fed(number: int) -> MemoryBroker:
    broker = MemoryBroker()
    broker.publish("q", *({"id": one} for one in range(number)))
    return broker


def yes(_message: object) -> bool:
    return True


def test_a_run_whose_handle_was_stopped_before_ends_at_once() -> None:
    handle, broker = Handle(), fed(3)
    handle.stop("never mind")
    ending = run(broker, "q", yes, schema="json", handle=handle)
    assert (ending.code, ending.reason, broker.waiting("q")) == (Exit.DONE, "never mind", 3)
    handle.stop("again")  # nobody is left to be stopped


def test_one_handle_stops_several_runs() -> None:
    handle, reasons = Handle(), list[str]()

    def work() -> None:
        reasons.append(run(MemoryBroker(), "q", yes, schema="json", handle=handle, on_event=begun).reason)

    ready = threading.Semaphore(0)

    def begun(event: Event) -> None:
        if event.name == events.READY:
            ready.release()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert ready.acquire(timeout=30)
    handle.stop("all")
    for thread in threads:
        thread.join(30)
    assert reasons == ["all"] * 3


def test_a_syncer_may_be_named() -> None:
    ending = run(fed(3), "q", f"{__file__}:yes", schema="json", until_empty=True)
    assert ending.counters.ack == 3


class Session:
    """An async context manager whose calls, entry and exit must be on the caller's loop."""

    seen: list[tuple[str, int]]

    def __init__(self) -> None:
        self.note("made")

    def note(self, what: str) -> None:
        Session.seen.append((what, id(asyncio.get_running_loop())))

    async def __aenter__(self) -> None:
        self.note("entered")

    async def __aexit__(self, *_: object) -> None:
        self.note("left")

    async def __call__(self, message: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        self.note("called")
        return True


def test_arun_makes_enters_calls_and_leaves_a_syncer_on_the_caller_s_loop() -> None:
    Session.seen = []

    async def main() -> int:
        bystander = asyncio.create_task(asyncio.sleep(3600))
        ending = await arun(fed(2), "q", Session, schema="json", until_empty=True, concurrency=2)
        assert (ending.code, ending.counters.ack) == (Exit.DONE, 2)
        # Nothing else on the loop was touched, and nothing of the run is left there.
        assert not bystander.done()
        assert asyncio.all_tasks() == {asyncio.current_task(), bystander}
        bystander.cancel()
        return id(asyncio.get_running_loop())

    loop = asyncio.run(main())
    assert Session.seen == [(what, loop) for what in ("made", "entered", "called", "called", "left")]


def test_arun_with_a_plain_syncer_leaves_the_loop_free() -> None:
    async def main() -> None:
        threads = set[int]()

        def sync(_message: object) -> bool:
            threads.add(threading.get_ident())
            return True

        ending = await arun(fed(5), "q", sync, schema="json", until_empty=True)
        assert ending.counters.ack == 5
        assert threading.get_ident() not in threads

    asyncio.run(main())


def test_an_error_of_the_syncer_s_is_an_ending_with_its_trace() -> None:
    async def fail(_message: object) -> bool:
        raise ZeroDivisionError

    ending = asyncio.run(arun(fed(1), "q", fail, schema="json"))
    assert ending.code is Exit.FATAL
    assert "ZeroDivisionError" in ending.trace


def test_several_runs_on_one_loop() -> None:
    async def sync(_message: object) -> bool:
        await asyncio.sleep(0)
        return True

    async def main() -> list[int]:
        endings = await asyncio.gather(
            *(arun(fed(50), "q", sync, schema="json", until_empty=True, concurrency=5) for _ in range(3))
        )
        return [ending.counters.ack for ending in endings]

    assert asyncio.run(main()) == [50, 50, 50]


def test_a_message_in_hand_keeps_nobody_from_cancelling_twice() -> None:
    """The second cancellation does not wait for the drain."""
    begun = threading.Event()

    async def main() -> None:
        never = asyncio.Event()

        async def wait(_message: object) -> bool:
            begun.set()
            await never.wait()
            return True

        task = asyncio.create_task(arun(fed(1), "q", wait, schema="json", drain_timeout=600))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        never.set()

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a loop can start tasks at once from Python 3.12 on")
def test_a_loop_that_starts_tasks_at_once() -> None:
    async def sync(message: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return True

    async def main() -> int:
        asyncio.get_running_loop().set_task_factory(vars(asyncio)["eager_task_factory"])
        ending = await arun(fed(5), "q", sync, schema="json", until_empty=True, concurrency=2)
        return ending.counters.ack

    assert asyncio.run(main()) == 5
