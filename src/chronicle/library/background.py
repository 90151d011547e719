"""A run on a thread of its own, so that whatever happens to the caller's thread never interrupts the pump.

Rule 1: the thread is a daemon: a program that ends without leaving its runs does not wait for them, and the
        broker gets back what was unfinished.
Rule 2: whoever waits is told by a callback, once, on that thread: before it, `ending` or `error` is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from chronicle.engine.job import Ending
from chronicle.engine.runner import Runner
from chronicle.library.client_logs import quiet_clients


class Background:
    """One run beside the program."""

    def __init__(self, runner: Runner, on_end: Callable[[], None] = lambda: None) -> None:
        self.ending: Ending | None = None
        self.error: BaseException | None = None
        self.over = False
        self._runner = runner
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="chronicle", daemon=True)

    def start(self) -> None:
        quiet_clients()
        self._thread.start()

    def stop(self, reason: str) -> None:
        """Ask for a drain; from any thread."""
        self._runner.stop(reason)

    def join(self) -> None:
        """Wait for the end; signals are served meanwhile."""
        self._thread.join()

    def result(self) -> Ending:
        """How it ended; raises what kept it from starting."""
        if self.error is not None:
            raise self.error
        assert self.ending is not None
        return self.ending

    def _run(self) -> None:
        try:
            self.ending = self._runner.run()
        except BaseException as error:  # for whoever waits
            self.error = error
        finally:
            self.over = True
            self._on_end()
