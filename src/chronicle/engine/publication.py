"""Publishing messages to a queue: batches, the wait for the broker, and an exact count at the end.

Rule 1: a message counts when the broker has confirmed it, not when it was sent.
Rule 2: a signal in the middle of a batch waits for that batch, so that the count stays exact; a second one
        does not wait.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Protocol, runtime_checkable

from chronicle.core.deadletters.death import undead
from chronicle.core.delivery import Delivery
from chronicle.core.words import line_in
from chronicle.engine.reconnect import pause, reach
from chronicle.engine.signals import heeded
from chronicle.transports.batches import batched
from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing, Publisher, nothing


@runtime_checkable
class CountsItself(Protocol):
    """A publisher whose broker may accept part of a batch."""

    @property
    def confirmed(self) -> int: ...


class Publication:
    """Messages on their way to a queue, counted as the broker confirms them."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._done = 0
        self._busy = False
        self.signal = 0  # the number of the signal that stopped us
        self.forced = False  # by a second one, which did not wait for the batch

    @property
    def confirmed(self) -> int:
        return self._publisher.confirmed if isinstance(self._publisher, CountsItself) else self._done

    def run(self, batches: Iterable[list[Outgoing]], advance: Callable[[int], None]) -> None:
        """Publish them all; raises KeyboardInterrupt after a signal, and the publisher's own errors."""
        before = {number: signal.signal(number, self._handle) for number in heeded()}
        try:
            for batch in batches:
                self._busy = True
                self._publisher.publish(batch)
                self._done += len(batch)
                self._busy = False
                advance(len(batch))
                if self.signal:
                    raise KeyboardInterrupt
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.forced, self.signal = bool(self.signal), number
        if self.forced or not self._busy:
            raise KeyboardInterrupt


def in_batches(messages: Iterable[Delivery]) -> Iterator[list[Outgoing]]:
    """Body, headers and properties of each message, in batches.

    The history of a death is left out: a published message has all its tries ahead of it.
    """
    outgoing = (
        Outgoing(message.body, undead(message.headers), message.properties, _place_of(message))
        for message in messages
    )
    return batched(outgoing, lambda message: len(message.body))


def _place_of(message: Delivery) -> str:
    """File and line of a message that was read from one."""
    file, line = message.origin.get("file"), message.origin.get("line")
    return line_in(file, line) if file and line else ""


@contextmanager
def reached(
    connector: Connector,
    startup_timeout: float,
    tell: Callable[[str], None],
    meanwhile: Callable[[], None] = nothing,
) -> Iterator[Publisher]:
    """A connected publisher; an unreachable broker is retried until the timeout (D-9)."""

    def connected(stopping: Callable[[], bool]) -> Publisher:
        return open_publisher(connector, stopping).__enter__()

    publisher = reach(connected, startup_timeout, tell, sleep=partial(pause, meanwhile=meanwhile))
    try:
        yield publisher
    finally:
        publisher.__exit__(None, None, None)
