"""Publishing messages to a queue file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Self

from chronicle.errors import NoSuchQueue
from chronicle.transports.local.address import file_of
from chronicle.transports.local.contents import pack
from chronicle.transports.local.schema import create
from chronicle.transports.local.store import Store
from chronicle.transports.seam import Connector, Outgoing, nothing


class LocalPublisher:
    """Puts messages on a queue in a file; creates both if they are missing, unless they must exist."""

    def __init__(self, connector: Connector, *, clock: Callable[[], float] = time.time) -> None:
        self._place, self._path = file_of(connector.url)
        self._queue = connector.queue
        self._must_exist = connector.must_exist
        self._clock = clock
        self._store: Store | None = None

    def __enter__(self) -> Self:
        if not self._must_exist:
            create(self._path, self._place)
        self._store = Store(self._path, self._place, durable=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def publish(
        self,
        batch: Sequence[Outgoing],
        meanwhile: Callable[[], None] = nothing,  # noqa: ARG002 - there is nobody to wait for
    ) -> None:
        """Return when all are on disk; if it raises, none are. An empty batch creates the queue."""
        assert self._store is not None, "a publisher is used inside its with block"
        contents = [(outgoing.body, pack(outgoing)) for outgoing in batch]
        with self._store.writing(opening=True):
            queue = self._queue_in(self._store)
            self._store.add(queue, int(self._clock() * 1000), contents)
        # What was written to a file without a name is on no queue.
        self._store.confirm()

    def _queue_in(self, store: Store) -> int:
        """The queue of that name, there already or created."""
        if not self._must_exist:
            return store.ensure_queue(self._queue)
        queue = store.queue_id(self._queue)
        if queue is None:
            create_it = f"chronicle declare --url {shlex.quote(f'local:{self._place}')} --queue"
            raise NoSuchQueue(
                f"{self._place} has no queue {self._queue!r}",
                f"check its name, or create it: {create_it} {shlex.quote(self._queue)}",
            )
        return queue
