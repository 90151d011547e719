"""Snapshot a queue into a capture: everything is received, nothing is settled, everything is given back.

Rule 1: the copy is what waited when it began, at most the limit, in the queue's order. What is published
        meanwhile is not in it.
Rule 2: a broker hands one consumer only so many messages. Who wants more gets a further consumer while the
        earlier ones hold on to theirs, and they let go in the same order, so that the queue keeps its own.
Rule 3: nothing waits for ever: messages that others hold, or that are kept back, are not waited for longer
        than a few seconds.
Rule 4: a quorum queue counts how often it has handed a message out, and beyond its limit dead-letters or
        drops it. A message that comes near that ends the copying.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from chronicle.captures.file import CaptureFile
from chronicle.core.delivery import Delivery, count
from chronicle.core.record import to_record
from chronicle.engine.reconnect import reach
from chronicle.errors import BrokerError, BrokerRefused, SettingError
from chronicle.transports.catalog import open_transport
from chronicle.transports.seam import Connector, Transport

WINDOW: Final = 65535  # messages one consumer may hold; AMQP has room for no larger number
TURN: Final = 0.25
QUIET: Final = 5.0  # seconds without a message


@dataclass(frozen=True, slots=True)
class Copied:
    """How a copy ended."""

    count: int
    wanted: int  # what waited at the start, or the limit
    stopped: bool = False


class Snapshot:
    """Copies one queue, once."""

    def __init__(
        self,
        connector: Connector,
        file: CaptureFile,
        *,
        limit: int | None,
        most_deliveries: int,
        startup_timeout: float,
        tell: Callable[[str], None],
        advance: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connector = replace(connector, prefetch=min(limit or WINDOW, WINDOW))
        self._file = file
        self._limit = limit
        self._most = most_deliveries
        self._startup_timeout = startup_timeout
        self._tell = tell
        self._advance = advance
        self._clock = clock
        self._stopping = False
        self._holders: list[Transport] = []

    def stop(self, _reason: str) -> None:
        """End early. Safe in a signal handler."""
        self._stopping = True

    def run(self) -> Copied:
        """Copy; raises OperatorError, BrokerError, and OSError when the file cannot be written."""
        with ExitStack() as all_back:
            all_back.callback(self._give_back)
            waiting = self._reach() or 0
            wanted = waiting if self._limit is None else min(waiting, self._limit)
            done = held = 0
            quiet = 0.0
            while done < wanted and not self._stopping and quiet < QUIET:
                if held >= WINDOW:
                    self._open_another()
                    held = 0
                began = self._clock()
                batch = self._receive(wanted - done)
                quiet = 0.0 if batch else quiet + self._clock() - began
                self._file.write([to_record(delivery) for delivery in batch])
                self._refuse_worn(batch)
                done += len(batch)
                held += len(batch)
                self._advance(len(batch))
        return Copied(done, wanted, self._stopping)

    def _receive(self, room: int) -> Sequence[Delivery]:
        for holder in self._holders[:-1]:
            holder.receive(0, 0.0)  # for its heartbeats
        return self._holders[-1].receive(min(room, WINDOW), TURN)

    def _reach(self) -> int | None:
        """Open the first transport; a stop ends the pauses between tries."""
        return reach(
            self._open_another, self._startup_timeout, self._tell, clock=self._clock, sleep=self._pause
        )

    def _open_another(self) -> int | None:
        transport = open_transport(self._connector)
        if not transport.promises.settles:
            raise BrokerRefused(
                f"{transport.promises.transport} does not keep messages: nothing could be given back",
                "use consume --capture",
            )
        try:
            waiting = transport.open(lambda: self._stopping)
        except BaseException:
            transport.close()
            raise
        self._holders.append(transport)
        return waiting

    def _pause(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._stopping and (left := until - self._clock()) > 0:
            time.sleep(min(left, TURN))

    def _refuse_worn(self, batch: Sequence[Delivery]) -> None:
        most = max((count(delivery.headers.get("x-delivery-count")) for delivery in batch), default=0)
        if most > self._most:
            raise SettingError(
                f"the broker has handed out a message of this queue {most} times before, and beyond its "
                "limit (20 unless set otherwise) a quorum queue dead-letters or drops it",
                "use consume --capture, or allow more with --max-deliveries",
            )

    def _give_back(self) -> None:
        # All stop before the first lets go: a consumer with room left would be handed the others' messages.
        for holder in self._holders:
            with suppress(BrokerError):
                holder.stop(QUIET)
        for holder in self._holders:
            holder.close()
