"""The second connection to a stream: it listens for the next entry, so that nothing waits on the first.

Rule: it only listens (XREAD BLOCK, which takes nothing out of a stream or a group); when it rings, whoever
        reads the stream reads. So no entry is ever handed to a connection that nobody reads, and a blocked
        read delays no verdict.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

from chronicle.errors import ConnectionLost
from chronicle.transports.redis.connection import Wire

BLOCK: Final = 5000  # milliseconds that it listens at a time
IDLE: Final = 1.0  # seconds; servers and proxies hang up on who is silent for long
MARGIN: Final = 10.0  # seconds that the answer may be late: Redis may block longer than asked (S2)


class Bell:
    """Rings when something was added to a stream."""

    def __init__(self, stream: str, wire: Wire) -> None:
        self.listening = False
        self.rang = False  # and whoever reads has not looked since
        self._pings = 0  # without an answer yet
        self._used = monotonic()
        self._stream = stream
        self._wire = wire

    def listen(self, after: bytes) -> None:
        """Ring as soon as there is an entry after this one."""
        if self._wire.closed:
            return  # hung up
        self._wire.put("XREAD", "COUNT", 1, "BLOCK", BLOCK, "STREAMS", self._stream, after)
        self._wire.flush()
        self.listening = True
        self._used = monotonic()

    def serve(self, *, came: bool = True) -> None:
        """See whether it rang, if something came. Raises ConnectionLost."""
        if self._wire.closed:
            return  # hung up
        for answer in self._wire.take() if came else ():
            if self._pings:
                self._pings -= 1
                continue
            self.listening = False
            if isinstance(answer, Exception):
                raise ConnectionLost(str(self._wire.trouble(answer)))
            if answer:
                self.rang = True
        now = monotonic()
        if not self.listening and not self._pings and now - self._used > IDLE:
            self._used = now
            self._pings += 1
            self._wire.put("PING")
            self._wire.flush()
        self._wire.look(BLOCK / 1000 + MARGIN)

    def hang_up(self) -> None:
        """Nobody reads any more: that this connection ends is no loss."""
        self.listening = False
        self._wire.close()
