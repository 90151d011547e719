"""Signals: the first asks for a drain, or interrupts what has none; the second ends the process.

In a program that is more than this run, the second is the program's own affair.

Rule 1: a handler sets a flag and wakes the pump, nothing else (X5); the second one does not return.
Rule 2: the last words are printed by a separate thread and waited for only briefly: whatever they are
        written to, the process ends.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

# A closed terminal sends SIGHUP; under nohup it is ignored, and stays so.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
A_MOMENT: Final = 0.5  # seconds for last words


def end_process(code: int, last_words: Callable[[], None], seconds: float) -> NoReturn:
    """End the process after these last words, or without them if they cannot be printed."""
    said = threading.Lock()
    said.acquire()

    def say() -> None:
        try:
            last_words()
        except Exception:
            pass  # there is nowhere left to report it
        finally:
            said.release()

    try:
        # Not `threading.Thread`: the interrupted code may hold the locks it needs.
        _thread.start_new_thread(say, ())
        said.acquire(timeout=seconds)
    finally:
        os._exit(code)


def heeded() -> list[signal.Signals]:
    """The signals that stop this process: those it was not started to ignore."""
    return [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]


def is_signal(reason: str) -> bool:
    """Whether a run that ended for this reason was stopped by a signal."""
    return reason.partition(";")[0] in {number.name for number in STOPPING}


def interrupt_on_signal(last_words: Callable[[], None]) -> None:
    """From now on the first of these signals raises KeyboardInterrupt, wherever this thread is."""

    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    handle = _once(interrupt, last_words)
    for number in heeded():
        signal.signal(number, handle)


@contextmanager
def stop_on_signal(stop: Callable[[str], None], last_words: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first of these signals; at the second print the last words and exit with 128+n."""
    handle = _once(stop, last_words)
    before = {number: signal.signal(number, handle) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def heed_no_signal() -> None:
    """From now on these signals do what they do to any process."""
    for number in heeded():
        signal.signal(number, signal.SIG_DFL)


def _once(first: Callable[[str], None], last_words: Callable[[], None]) -> Callable[..., None]:
    """A handler: the first signal is told by its name, the second ends the process."""
    asked = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            end_process(128 + number, last_words, A_MOMENT)
        asked = True
        first(signal.Signals(number).name)

    return handle


@contextmanager
def first_signal(stop: Callable[[str], None]) -> Iterator[None]:
    """Call `stop` at the first of these signals; from then on, the program's own handlers are back."""

    def handle(number: int, _frame: FrameType | None) -> None:
        restore()
        stop(signal.Signals(number).name)

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:  # and not one that the program has set meanwhile
                signal.signal(number, handler)

    # None is a handler that was not set by Python, and cannot be set again.
    known = {number: signal.getsignal(number) for number in STOPPING}
    before = {number: handler for number, handler in known.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
