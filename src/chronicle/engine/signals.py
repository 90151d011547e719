"""Signals: the first asks for a drain, the second ends the process.

Rule: a handler sets a flag and wakes the pump, nothing else (X5); the second one does not return.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# A closed terminal sends SIGHUP; under nohup it is ignored, and stays so.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stop_on_signal(stop: Callable[[str], None], last_words: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first of these signals; at the second say the last words and exit 128+n."""
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

    wanted = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
