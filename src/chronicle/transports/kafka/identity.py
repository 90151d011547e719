"""Whether a topic is still the same.

A topic that is deleted and made anew at once has another identity, and begins again at offset 0. A client
that was reading it does not notice when the new one is already longer than what it had read: it would go on
in the middle.
"""

from __future__ import annotations

from typing import Final

from chronicle.errors import ChronicleError
from chronicle.transports.kafka.admin import Admin
from chronicle.transports.seam import Connector, never

EVERY: Final = 10.0  # seconds between two looks
PATIENCE: Final = 2.0  # seconds for an answer


class Identity:
    """Looks now and then. On the client's thread."""

    def __init__(self, connector: Connector, identity: str) -> None:
        self._connector = connector
        self._identity = identity
        self._due: float | None = None
        self._admin: Admin | None = None

    def hurry(self) -> None:
        """The next look is due."""
        self._due = 0.0

    def changed(self, now: float) -> bool | None:
        """Whether it is another topic than at the last look; None if it is not time, or nobody answers."""
        if self._due is None:
            self._due = now + EVERY
        if now < self._due:
            return None
        self._due = now + EVERY
        return self.look()

    def look(self) -> bool | None:
        """The same, now."""
        try:
            if self._admin is None:
                self._admin = Admin(self._connector, never, PATIENCE)
            found = self._admin.topics((self._connector.queue,)).get(self._connector.queue)
        except ChronicleError:
            return None
        if found is None or not found.identity:
            return None
        before, self._identity = self._identity, found.identity
        return bool(before) and before != found.identity

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
