"""Where syncers run, as the pump sees it.

Rule 1: the pump hands over batches and takes back batches; it never waits here.
Rule 2: at most `concurrency` syncers run at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from chronicle.core.delivery import Delivery
from chronicle.core.pipeline import Pipeline, Schema
from chronicle.core.policy import Policy
from chronicle.telemetry.consumer_spans import consumer_spans
from chronicle.workers.handler import Handler
from chronicle.workers.loader import Syncer
from chronicle.workers.mailbox import Mailbox
from chronicle.workers.pump_loan import Turn
from chronicle.workers.slot import Slot
from chronicle.workers.turns import TurnTaking

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Workers(Protocol):
    """What the runner sees of threads and tasks alike."""

    @property
    def slots(self) -> Sequence[Slot]:
        """The places of the workers, to see what is running."""

    def start(self) -> None:
        """Create the syncer, enter it if it is a context manager, and be ready. Raises SyncerError."""

    def submit(self, batch: Sequence[Delivery]) -> None: ...

    def discard(self) -> list[Delivery]:
        """Take back what no worker has started."""

    def can_borrow(self) -> bool:
        """Whether a worker could turn the pump now."""

    def borrow(self, turn: Turn, fileno: int) -> None:
        """Turn the pump in here until it is given back, or no worker responds. Raises what `turn` raises.

        `fileno` is readable when there is something to receive.
        """

    def stop(self, patience: float) -> bool:
        """Leave the syncer's context; False if it did not end in time."""


def make_workers(
    syncer: Syncer,
    pipeline: Pipeline,
    policy: Policy,
    concurrency: int,
    mailbox: Mailbox,
    time_limit: float = 0.0,
    *,
    alone: bool = True,
    loop: AbstractEventLoop | None = None,
) -> TurnTaking:
    """The workers this syncer needs; they tune the process only if it is there for them alone.

    An async syncer has a loop of its own, unless it is to run on this one.
    """
    workers = _workers(syncer, pipeline, policy, concurrency, mailbox, time_limit, alone, loop)
    return TurnTaking(workers, mailbox, turns=concurrency > 1 and pipeline.schema is not Schema.RAW)


def _workers(
    syncer: Syncer,
    pipeline: Pipeline,
    policy: Policy,
    concurrency: int,
    mailbox: Mailbox,
    time_limit: float,
    alone: bool,
    loop: AbstractEventLoop | None,
) -> Workers:

    def handler(call: Callable[..., Any]) -> Handler:
        """Made when the syncer has been entered, which may be where it sets up its spans."""
        spans, taking = consumer_spans(), syncer.takes_delivery
        if spans is None:
            return Handler(pipeline, policy, call, takes_delivery=taking, time_limit=time_limit)
        from chronicle.workers.traced_handler import TracedHandler

        return TracedHandler(
            pipeline, policy, call, takes_delivery=taking, time_limit=time_limit, spans=spans
        )

    if syncer.is_async:
        from chronicle.workers.tasks import TaskWorkers  # asyncio is slow to import

        return TaskWorkers(syncer, handler, concurrency, mailbox, loop)
    from chronicle.workers.threads import ThreadWorkers  # and nobody needs both

    return ThreadWorkers(syncer, handler, concurrency, mailbox, alone=alone)
