"""What an async syncer may do on the loop that chronicle gives it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from chronicle.telemetry.redaction import trace_of
from chronicle.testing import run_syncer


async def _starts_a_process() -> bool:
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", "cat; exit 3", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate(b"a line")
    return (printed, process.returncode) == (b"a line", 3)


async def _asks_threads() -> bool:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: True) and await loop.run_in_executor(None, lambda: True)


async def _gives_up_waiting() -> bool:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        return await asyncio.wait_for(asyncio.sleep(0, result=True), 60)
    return False


async def _talks_over_sockets() -> bool:
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    writer.write(b"a line\n")
    there.setblocking(False)
    heard = await asyncio.get_running_loop().sock_recv(there, 64)
    there.close()
    answered = await reader.read()
    writer.close()
    return (heard, answered) == (b"a line\n", b"")


async def _gathers_tasks() -> bool:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(0.001, result=number)) for number in range(50)]
    return [task.result() for task in tasks] == [*range(50)]


@pytest.mark.parametrize(
    "does",
    [_starts_a_process, _asks_threads, _gives_up_waiting, _talks_over_sockets, _gathers_tasks],
)
def test_what_asyncio_offers(does: Callable[[], Awaitable[bool]]) -> None:
    async def sync(_message: dict[str, Any]) -> bool:
        return await does()

    result = run_syncer(sync, [{"id": 1}, {"id": 2}, {"id": 3}], schema="json", concurrency=2)
    assert (result.acked, result.fatal) == (3, "")


@pytest.mark.parametrize("told", [False, True])
def test_what_the_loop_raises_is_shown_by_the_lines_that_called_it(told: bool) -> None:
    """Z5: there is no source of the loop to show, and it is not code made at run time."""

    async def call() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(OSError) as caught:
        runner.run(call())
    trace = trace_of(caught.value, {"id": 1} if told else None)
    assert "in call" in trace
    assert "made at run time" not in trace
