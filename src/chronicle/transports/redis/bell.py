"""The second connection to a stream: it listens for the next entry, so that nothing waits on the first.

Rule: it only listens (XREAD BLOCK, which takes nothing out of a stream or a group); when it rings, whoever
        reads the stream reads. So no entry is ever handed to a connection that nobody reads, and a blocked
        read delays no verdict.
"""

from __future__ import annotations

from typing import Final

from chronicle.errors import ConnectionLost
from chronicle.transports.redis.connection import Wire

BLOCK: Final = 5000  # milliseconds that it listens at a time
MARGIN: Final = 10.0  # seconds that the answer may be late: Redis may block longer than asked (S2)


class Bell:
    """Rings when something was added to a stream."""

    def __init__(self, stream: str, wire: Wire) -> None:
        self.listening = False
        self.rang = False  # and whoever reads has not looked since
        self._stream = stream
        self._wire = wire

    def listen(self, after: bytes) -> None:
        """Ring as soon as there is an entry after this one."""
        self._wire.put("XREAD", "COUNT", 1, "BLOCK", BLOCK, "STREAMS", self._stream, after)
        self._wire.flush()
        self.listening = True

    def serve(self) -> None:
        """See whether it rang. Raises ConnectionLost."""
        for answer in self._wire.take():
            self.listening = False
            if isinstance(answer, Exception):
                raise ConnectionLost(str(self._wire.trouble(answer)))
            if answer:
                self.rang = True
        self._wire.look(BLOCK / 1000 + MARGIN)
