"""No test hangs: one that takes too long fails, and says what every thread was doing.

Rule 1: the limit is far beyond what a starved machine needs; it catches what would never end.
Rule 2: a test that does not even fail ends its process: the run goes on without it, and has failed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Final

import pytest

LIMIT: Final = 300.0
# Tearing down what hung may hang in its turn.
AGAIN: Final = 60.0
LAST: Final = LIMIT + 3 * AGAIN
STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # While a test runs, the stderr of its process is caught.
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("soak") or threading.current_thread() is not threading.main_thread():
        return (yield)
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, AGAIN)
    faulthandler.dump_traceback_later(LAST, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _too_long(signum: int, frame: FrameType | None) -> None:
    pytest.fail(f"the test still ran after {LIMIT:g} s; its threads were here:\n\n{stacks()}", pytrace=False)


def stacks() -> str:
    """Where every thread of this process is, the caller's last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda found: found[0] == own)
    return "\n".join(
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}" for ident, frame in frames
    )
