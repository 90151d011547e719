"""Reading a dead-letter queue: what was there at the start, once; what is not removed stays.

Rule 1: a message that dies again meanwhile goes to the end of the queue and is not seen twice in one run.
Rule 2: looking never loses a letter, however often: one that the broker has delivered too often is refreshed
        if it stays (RB10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from chronicle.engine.queue_reader import reading
from chronicle.errors import NoSuchQueue
from chronicle.transports.catalog import broker_of, open_reader
from chronicle.transports.holding_reader import HoldingReader
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.seam import Connector, OnWorn, Reader, Reading, never

AHEAD: Final = 1000  # for callers that remove what they read: what the broker sends ahead is kept in memory
WORN_AFTER: Final = 3  # deliveries; far below any sensible limit: a look that was killed counts as well


@contextmanager
def dead_letters(
    connector: Connector,
    ahead: int | None,
    worn_after: int = WORN_AFTER,
    *,
    startup_timeout: float = 0.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Reader]:
    """The dead letters of one queue, oldest first; `connector` names the dead-letter queue itself."""
    reader = open_reader(connector, Reading(ahead, OnWorn.REFRESH, worn_after))
    with ExitStack() as opened:
        try:
            opened.enter_context(reading(reader, startup_timeout, tell))
        except NoSuchQueue:
            raise no_letters(connector) from None
        yield reader


def nothing_died(main: Connector, dead: str) -> Reader:
    """An empty reader, for a queue that has no dead-letter queue; NoSuchQueue if it is not there either.

    A queue without dead letters is good news; a slip in its name is not, and must not look like it.
    """
    if not broker_of(main.url).has_queue(main, never):
        raise NoSuchQueue(
            f"there is no queue {main.queue!r}, and no dead-letter queue {dead!r}",
            "check --queue, and the end of the URL",
        )
    return HoldingReader(lambda _: MemoryTransport(()), main, Reading())


def no_letters(connector: Connector) -> NoSuchQueue:
    """The error when there is no such dead-letter queue."""
    return NoSuchQueue(
        f"there is no dead-letter queue {connector.queue!r}",
        "nothing has died yet, or the dead letters are in another queue: name it with --dlq",
    )
