"""Signals: the first asks for a drain, the second ends the process (R-004-2, X5)."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from chronicle.engine.signals import STOPPING, stop_on_signal

TWICE = """
import signal, sys
from chronicle.engine.signals import stop_on_signal
def last_words():
    print("last words", flush=True)
    {more}
with stop_on_signal(lambda name: print("asked", name, flush=True), last_words):
    signal.raise_signal(signal.{first})
    signal.raise_signal(signal.{second})
    print("never said")
"""


def silent() -> None:
    raise AssertionError("nobody asked for the last words")


@pytest.mark.parametrize("number", STOPPING)
def test_R_004_2_the_first_signal_asks_for_a_stop_by_its_name(number: signal.Signals) -> None:
    asked: list[str] = []
    with stop_on_signal(asked.append, silent):
        signal.raise_signal(number)
        assert asked == [number.name]


def test_what_was_there_before_comes_back() -> None:
    before = {number: signal.getsignal(number) for number in STOPPING}
    with stop_on_signal(lambda name: None, silent):
        assert all(signal.getsignal(number) is not before[number] for number in STOPPING)
    assert {number: signal.getsignal(number) for number in STOPPING} == before


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [("SIGINT", "SIGINT", 130), ("SIGTERM", "SIGTERM", 143), ("SIGINT", "SIGTERM", 143)],
)
@pytest.mark.parametrize("more", ["pass", "raise OSError"], ids=["", "even if they cannot be said"])
def test_X6_the_second_ends_the_process_with_its_number(
    first: str, second: str, code: int, more: str
) -> None:
    program = TWICE.format(first=first, second=second, more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout == f"asked {first}\nlast words\n"


@pytest.mark.parametrize("more", ["signal.pause()", "import time; time.sleep(600)", "lock.acquire()"])
def test_X5_last_words_that_never_end_do_not_keep_the_process(more: str) -> None:
    program = "import threading\nlock = threading.Lock()\nlock.acquire()\n"
    program += TWICE.format(first="SIGTERM", second="SIGTERM", more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=30)
    assert done.returncode == 143
