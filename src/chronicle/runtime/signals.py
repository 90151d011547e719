"""Signals: the first asks for a drain, the second ends the process.

Rule: a handler sets a flag and wakes the pump, nothing else (X5); the second one does not return.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signal(stop: Callable[[str], None], last_words: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM; at the second say the last words and exit 128+n."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            try:
                last_words()
            finally:
                os._exit(128 + number)
        asked = True
        stop(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
