"""What ends a run from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Handle:
    """Give it to `run` or `arun` as `handle`, and stop the run from another thread, a task or a callback.

    A run that begins after `stop` ends at once; so does every other run that has the handle.
    """

    def __init__(self) -> None:
        self._reason: str | None = None
        self._stops: list[Callable[[str], None]] = []

    def stop(self, reason: str = "asked to stop") -> None:
        """Take in nothing new, finish what was received, and end. May be called more than once."""
        self._reason = self._reason or reason
        for stop in tuple(self._stops):
            stop(self._reason)

    @contextmanager
    def on(self, stop: Callable[[str], None]) -> Iterator[None]:
        """What to call when it is stopped, for as long as the run lasts; at once if it is stopped."""
        self._stops.append(stop)
        if self._reason is not None:
            stop(self._reason)
        try:
            yield
        finally:
            self._stops.remove(stop)
