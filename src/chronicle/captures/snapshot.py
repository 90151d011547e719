"""Snapshot a queue into a capture: everything is read, nothing is removed.

Rule 1: the copy is what was waiting when it began, at most the limit, in the queue's order. What is published
        meanwhile is not in it.
Rule 2: some brokers count how often they have delivered a message, and beyond a limit dead-letter or drop it.
        A message that comes near that limit ends the copying.
"""

from __future__ import annotations

from collections.abc import Callable

from chronicle.captures.file import CaptureFile
from chronicle.core.body import MAX_BODY
from chronicle.core.frozen import frozen
from chronicle.core.record import to_record
from chronicle.engine.queue_reader import reading
from chronicle.engine.reconnect import TURN
from chronicle.transports.catalog import open_reader
from chronicle.transports.seam import Connector, OnWorn, Reading


@frozen
class Copied:
    """How a copy ended."""

    count: int
    wanted: int  # how many were waiting at the start, or the limit
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
        readable: int = MAX_BODY,
        startup_timeout: float,
        tell: Callable[[str], None],
        advance: Callable[[int], None],
    ) -> None:
        self._reader = open_reader(connector, Reading(limit, OnWorn.REFUSE, most_deliveries + 1))
        self._file = file
        self._limit = limit
        self._readable = readable  # bodies up to this size are in their records as text and JSON, too
        self._startup_timeout = startup_timeout
        self._tell = tell
        self._advance = advance
        self._stopping = False

    def stop(self, _reason: str) -> None:
        """End early. Safe in a signal handler."""
        self._stopping = True

    def run(self) -> Copied:
        """Copy; raises OperatorError, BrokerError, and OSError when the file cannot be written."""
        done = 0
        with reading(self._reader, self._startup_timeout, self._tell, lambda: self._stopping) as reader:
            wanted = reader.present if self._limit is None else min(reader.present, self._limit)
            while done < wanted and not self._stopping:
                batch = reader.read(wanted - done, TURN)
                if batch is None:
                    wanted = min(wanted, reader.present)
                    break
                self._file.write([to_record(delivery, max_body=self._readable) for delivery in batch])
                done += len(batch)
                self._advance(len(batch))
        return Copied(done, wanted, self._stopping)
