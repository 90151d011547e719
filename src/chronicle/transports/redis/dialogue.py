"""Questions to a server, and what to do with the answers when they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TypeAlias

from chronicle.errors import ConnectionLost
from chronicle.transports.redis.connection import TURN, Answer, Argument, Wire

Then: TypeAlias = Callable[[Answer], None]
Failed: TypeAlias = Callable[[Exception], None]


def ignore(_answer: Answer) -> None:
    """Nobody needs this answer."""


class Dialogue:
    """One connection, and who waits for which answer. Nothing in here waits."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._awaited: deque[tuple[Then, Failed | None]] = deque()

    def ask(self, then: Then, *command: Argument, failed: Failed | None = None) -> None:
        """Ask with the next `flush`. An error ends the connection, unless `failed` takes care of it."""
        self.wire.put(*command)
        self._awaited.append((then, failed))

    def script(
        self,
        then: Then,
        script: str,
        keys: tuple[str, ...],
        *arguments: Argument,
        failed: Failed | None = None,
    ) -> None:
        """Run a script with the next `flush`."""
        self.ask(then, "EVAL", script, len(keys), *keys, *arguments, failed=failed)

    def serve(self) -> None:
        """Hand out the answers that have come. Raises ConnectionLost."""
        for answer in self.wire.take():
            then, failed = self._awaited.popleft()
            if not isinstance(answer, Exception):
                then(answer)
            elif failed is not None:
                failed(answer)
            else:
                raise self.end(answer)
        self.wire.look()

    def finish(self, patience: float) -> None:
        """Wait at most this long for the answers that are under way, and for those they lead to."""
        deadline = monotonic() + patience
        self.wire.flush()
        while self.wire.waiting and (left := deadline - monotonic()) > 0:
            self.wire.wait(min(TURN, left))
            self.serve()
            self.wire.flush()

    def end(self, error: Exception) -> ConnectionLost:
        """What to raise for an answer that ends the connection; a refusal shows itself at the next try."""
        trouble = self.wire.trouble(error)
        return trouble if isinstance(trouble, ConnectionLost) else ConnectionLost(str(trouble))
