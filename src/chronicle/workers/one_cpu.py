"""Whether worker threads share one CPU, decided by what it brings.

Python runs one thread at a time, the one that holds its lock (the GIL), and a thread lets go of it for every
system call, however short. If another CPU is free, the next thread is woken there at once and takes the lock,
and the first one has to wait to get it back: a dozen switches for one HTTP request. On one CPU it is through
with the call, and has the lock again, before another thread runs. Measured with fifty HTTP requests at a time
on two CPUs: 1.5 times as many messages, each for 0.6 times the CPU.

Rule 1: it is tried only where threads hand the lock to one another all the time and use about one CPU's
        worth. With less they wait for something else; with more a syncer computes without the lock (numpy,
        compression) and keeps all CPUs.
Rule 2: it is kept only as long as it pays (trial.py), which it would not if somebody else needed that CPU.
        After a trial that failed the next one is on another CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronicle.workers.trial import Pulse, Trial

BUSY: Final = 0.5  # CPUs in use, from which on there is something to gain
PARALLEL: Final = 1.5  # CPUs in use, from which on much is computed without the lock


class OneCpu:
    """Which of these CPUs the threads should share, or None for all of them; `first` is where to begin."""

    def __init__(self, cpus: Sequence[int], first: int) -> None:
        self._cpus = cpus
        self._next = first
        self._trial = Trial()

    def judge(self, pulse: Pulse) -> int | None:
        """Choose for the next pulse by the last one, which went by as was chosen before."""
        was_on = self._trial.on
        on = self._trial.judge(pulse, promising=_hands_over(pulse))
        if was_on and self._trial.failures:
            self._next += 1
        return self._cpus[self._next % len(self._cpus)] if on else None


def _hands_over(pulse: Pulse) -> bool:
    """Whether threads hand the lock to one another more than they work."""
    return pulse.switches > pulse.done > 0 and BUSY < pulse.cpus < PARALLEL
