"""What a run is made of, and how it ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from chronicle.core.backoff import Backoff
from chronicle.core.frozen import frozen
from chronicle.core.pipeline import Pipeline
from chronicle.core.policy import Policy
from chronicle.telemetry.counters import Counters
from chronicle.workers.base import make_workers
from chronicle.workers.garbage import seldom_collected
from chronicle.workers.loader import Syncer
from chronicle.workers.mailbox import Mailbox, watch_other_threads
from chronicle.workers.turns import TurnTaking

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Exit(IntEnum):
    """Exit codes (X6)."""

    DONE = 0
    FATAL = 1
    OPERATOR = 2
    UNREACHABLE = 3
    RETURNED = 4


@frozen
class Bounds:
    """When a run ends by itself; without any bound, never."""

    until_empty: bool = False
    max_messages: int | None = None
    max_time: float | None = None
    idle_timeout: float | None = None

    def remaining(self, received: int) -> int:
        """How many more messages may be received."""
        return sys.maxsize if self.max_messages is None else self.max_messages - received


@frozen
class Lifecycle:
    """The timeouts of a run, in seconds."""

    startup_timeout: float = 60.0  # 0: forever
    drain_timeout: float = 30.0
    give_up_after: float = 0.0  # 0: never
    backoff: Backoff | None = None  # None: the transport's own


class Objection(NamedTuple):
    """Why a run that did all it could is no success, and the code it ends with."""

    reason: str
    code: Exit = Exit.FATAL


def no_objection(_ending: Ending) -> Objection | None:
    """A run that ends as it should is a success."""
    return None


@frozen
class Limits:
    """What protects the other side."""

    time_limit: float = 0.0  # seconds a syncer may take; 0: forever
    rate: float = float("inf")  # how many may begin per second
    brake: int = 0  # so many failures in a row pause intake; 0: none do


@frozen
class Job:
    """A syncer to run over a queue, and all choices about it."""

    syncer: Syncer
    pipeline: Pipeline = field(default_factory=Pipeline)
    policy: Policy = field(default_factory=Policy)
    concurrency: int = 1
    prefetch: int = 2
    bounds: Bounds = field(default_factory=Bounds)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    limits: Limits = field(default_factory=Limits)
    objection: Callable[[Ending], Objection | None] = no_objection  # asked at a good end
    progress: float = 0.0  # seconds between two lines about it (progress.py); 0: none, and no look at depths
    alone: bool = True  # the process is there for this run: its threads may be tuned and watched
    loop: AbstractEventLoop | None = None  # where an async syncer is to run; None: on a loop of its own
    make: Callable[[Mailbox], TurnTaking] | None = None  # other workers than those the syncer needs


def workers_for(job: Job, mailbox: Mailbox) -> TurnTaking:
    """The workers this job needs."""
    if job.make is not None:
        return job.make(mailbox)
    return make_workers(
        job.syncer,
        job.pipeline,
        job.policy,
        job.concurrency,
        mailbox,
        job.limits.time_limit,
        alone=job.alone,
        loop=job.loop,
    )


@contextmanager
def own_process(job: Job, mailbox: Mailbox) -> Iterator[None]:
    """What a run changes while it lasts in a process that is there for it alone, and in no other."""
    if not job.alone:
        yield
        return
    with watch_other_threads(mailbox), seldom_collected(job.concurrency):
        yield


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. `stuck`: a syncer is still running, so only a hard exit ends the process."""

    code: Exit
    reason: str
    counters: Counters
    stuck: bool = False
    trace: str = ""
    remedy: str = ""  # what to look at, if it could not connect
    unclosed: BaseException | None = None  # what the syncer raised when it was left
