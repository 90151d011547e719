"""`run` and `arun`: what `chronicle consume` does, from a program.

Rule 1: the run has a thread of its own (background.py), and so have the syncers; with `arun`, async syncers
        are tasks on the caller's loop.
Rule 2: on a main thread `run` takes the signals until it returns: the first one asks for a drain, after it
        the program's own handlers are back, so a second Ctrl-C raises KeyboardInterrupt. `arun` takes none:
        asyncio cancels the task that awaits it, which asks for a drain, too.
Rule 3: an error of the caller's is raised; how a run went is its ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from chronicle.engine.job import Ending, Job
from chronicle.engine.runner import Runner
from chronicle.engine.signals import first_signal
from chronicle.library.background import Background
from chronicle.library.event import Reporter
from chronicle.library.handle import Handle
from chronicle.library.plan import Place, labels_of, plan_run
from chronicle.library.values import spelled_for_programs
from chronicle.transports.seam import Transport

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from chronicle.library.options import RunOptions


def run(url: Place, queue: str, syncer: Any, **options: Unpack[RunOptions]) -> Ending:
    """Run a syncer over a queue until it is done, is told to stop, or cannot continue.

        ending = run("amqp://…", "orders", ship, schema="json", concurrency=20, until_empty=True)

    The syncer is a function, a class, or its name as `module:name`. The options are those of
    `chronicle consume`. Raises OperatorError if it cannot start.
    """
    with spelled_for_programs():
        job, transport = plan_run(url, queue, syncer, options)
    background = Background(_runner(job, transport, queue, options))
    in_main = threading.current_thread() is threading.main_thread()
    with _handle_of(options).on(background.stop), first_signal(background.stop) if in_main else nullcontext():
        background.start()
        background.join()
    return background.result()


async def arun(url: Place, queue: str, syncer: Any, **options: Unpack[RunOptions]) -> Ending:
    """The same beside other tasks: an async syncer runs on this very loop. Cancelling it asks for a drain."""
    import asyncio  # only those who use it wait for it

    loop = asyncio.get_running_loop()
    with spelled_for_programs():
        job, transport = plan_run(url, queue, syncer, options)
    over = asyncio.Event()
    runner = _runner(replace(job, loop=loop), transport, queue, options)
    background = Background(runner, lambda: _call(loop, over.set))
    with _handle_of(options).on(background.stop):
        background.start()
        try:
            await over.wait()
        except asyncio.CancelledError:
            background.stop("cancelled")
            await over.wait()
            raise
    return background.result()


def _call(loop: AbstractEventLoop, function: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and nobody waits
        loop.call_soon_threadsafe(function)


def _runner(job: Job, transport: Transport, queue: str, options: RunOptions) -> Runner:
    return Runner(job, transport, Reporter(options.get("on_event"), labels_of(transport, queue)))


def _handle_of(options: RunOptions) -> Handle:
    return options.get("handle") or Handle()
