"""How worker threads share what Python gives to one of them at a time: on one CPU, and by how many.

A hundred threads that all want Python's lock are slower than a few, because each switch finds cold caches.
Measured with a hundred HTTP requests at a time: 1.2 times as many messages with 16 threads at work as with a
hundred, when the server answers at once.

Rule 1: fewer are at work only where they share one CPU (one_cpu.py) and that is full: threads that wait for
        something else than the lock are needed.
Rule 2: it is kept only as long as it pays (trial.py): whatever takes its time suddenly, all are at work again
        with the next pulse.
Rule 3: all this lasts only as long as the workers have the pump.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from resource import RUSAGE_SELF, getrusage
from time import monotonic, process_time
from typing import Final

from chronicle.workers.affinity import Affinity, usable_cpus
from chronicle.workers.one_cpu import OneCpu
from chronicle.workers.trial import Pulse, Trial

FULL: Final = 0.9  # of a CPU
FEW: Final = 8
PART: Final = 8  # of so many threads, one is at work, but not fewer than a few


class Contention:
    """Judges with each pulse how these threads run; `limit` is told how many may be at work."""

    def __init__(
        self, threads: Sequence[threading.Thread], pulse: Callable[[], Pulse], limit: Callable[[int], None]
    ) -> None:
        self._pulse = pulse
        self._limit = limit
        self._all = len(threads)
        self._few = max(FEW, self._all // PART)
        self._cpus = usable_cpus() if self._all > 1 else set()
        self._affinity = Affinity(threads, self._cpus)
        # Processes that were started together have numbers that follow one another, and begin apart.
        self._one = OneCpu(sorted(self._cpus), os.getpid())
        self._fewer = Trial()

    def judge(self) -> None:
        """Change how they run, or leave it, by what happened since the last time."""
        if len(self._cpus) < 2:
            return
        pulse = self._pulse()
        if self._fewer.on and not self._fewer.judge(pulse, promising=False):
            self._limit(self._all)
            return  # which says nothing about the CPU
        chosen = self._one.judge(pulse)
        if chosen != self._affinity.cpu:
            self._fewer.call_off()
            self._limit(self._all)
            self._affinity.keep_on(chosen)
        elif chosen is not None and not self._fewer.on:
            is_full = pulse.cpus > FULL and self._few < self._all
            self._limit(self._few if self._fewer.judge(pulse, promising=is_full) else self._all)

    def restore(self) -> None:
        """Let all of them work, on all CPUs."""
        self._limit(self._all)
        self._affinity.keep_on(None)


class Meter:
    """Measures what this process does; `done` says how many messages were handled so far."""

    def __init__(self, done: Callable[[], int]) -> None:
        self._done = done
        self._last = self._look()

    def pulse(self) -> Pulse:
        """What was done since it was last asked."""
        before, now = self._last, self._look()
        self._last = now
        seconds, cpu, switches, done = (after - earlier for after, earlier in zip(now, before, strict=True))
        return Pulse(seconds, cpu, int(switches), int(done))

    def _look(self) -> tuple[float, float, float, float]:
        return monotonic(), process_time(), getrusage(RUSAGE_SELF).ru_nvcsw, self._done()
