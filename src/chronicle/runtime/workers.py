"""Where syncers run, as the pump sees it.

Rule 1: the pump hands over batches and takes back batches; it never waits here.
Rule 2: at most `concurrency` syncers run at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from chronicle.core.delivery import Delivery
from chronicle.runtime.handling import Handling
from chronicle.runtime.loader import Syncer
from chronicle.runtime.mailbox import Mailbox
from chronicle.runtime.threads import ThreadWorkers


class Workers(Protocol):
    """What the runner sees of either kind."""

    def start(self) -> None:
        """Make the syncer, enter it if it is a context manager, and be ready. Raises SyncerError."""

    def submit(self, batch: Iterable[Delivery]) -> None: ...

    def discard(self) -> list[Delivery]:
        """Take back what no worker has started."""

    def stop(self, patience: float) -> bool:
        """Leave the syncer's context; False if it did not end in time."""


def make_workers(
    syncer: Syncer,
    handling: Callable[[Callable[..., Any]], Handling],
    concurrency: int,
    mailbox: Mailbox,
) -> Workers:
    """The workers this syncer needs."""
    if syncer.is_async:
        from chronicle.runtime.tasks import TaskWorkers  # asyncio is slow to import

        return TaskWorkers(syncer, handling, concurrency, mailbox)
    return ThreadWorkers(syncer, handling, concurrency, mailbox)
