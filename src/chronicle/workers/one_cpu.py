"""Whether worker threads share one CPU, decided by what it brings.

Python runs one thread at a time, the one that holds its lock (the GIL), and a thread lets go of it for every
system call, however short. If another CPU is free, the next thread is woken there at once and takes the lock,
and the first one has to wait to get it back: a dozen switches for one HTTP request. On one CPU it is through
with the call, and has the lock again, before another thread runs. Measured with fifty HTTP requests at a time
on two CPUs: 1.5 times as many messages, each for 0.6 times the CPU.

Rule 1: it is tried only where threads hand the lock to one another all the time and use about one CPU's
        worth. With less they wait for something else; with more a syncer computes without the lock (numpy,
        compression) and keeps all CPUs.
Rule 2: it is kept only as long as a message costs clearly less CPU than before and they are not handled more
        slowly, as they would be if somebody else needed that CPU. What was before is measured again from
        time to time. After a trial that failed the next one is on another CPU, and later each time.
Rule 3: this file decides, and knows neither clock nor system (affinity.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronicle.core.frozen import frozen

BUSY: Final = 0.5  # CPUs in use, from which on there is something to gain
PARALLEL: Final = 1.5  # CPUs in use, from which on much is computed without the lock
CHEAPER: Final = 0.9  # of the CPU per message before: at most this much is clearly less
SLOWER: Final = 0.9  # of the messages per second before: less than this is clearly slower
HELD: Final = 40  # pulses until what was before is measured again
REST: Final = 8  # pulses after a trial that failed; twice as many after each further one
LONGEST_REST: Final = 256


@frozen
class Pulse:
    """What the process did in a moment: seconds, CPU seconds, switches of threads that waited, messages."""

    seconds: float
    cpu: float
    switches: int
    done: int

    @property
    def rate(self) -> float:
        return self.done / self.seconds

    @property
    def cost(self) -> float:
        return self.cpu / self.done

    @property
    def hands_over(self) -> bool:
        """Whether threads hand the lock to one another more than they work."""
        return self.switches > self.done > 0 and BUSY < self.cpu / self.seconds < PARALLEL


class OneCpu:
    """Which of these CPUs the threads should share, or None for all of them; `first` is where to begin."""

    def __init__(self, cpus: Sequence[int], first: int) -> None:
        self._cpus = cpus
        self._next = first
        self._before: Pulse | None = None  # the last pulse on all CPUs, during a trial
        self._pulses = 0  # how long it has been as it is
        self._rest = 0
        self._failures = 0

    def judge(self, pulse: Pulse) -> int | None:
        """Choose for the next pulse by the last one, which went by as was chosen before."""
        self._pulses += 1
        if self._before is None:
            if self._pulses > self._rest and pulse.hands_over:
                self._change(pulse)
        elif not _pays(pulse, self._before):
            self._failures += 1
            self._next += 1
            self._change(None, min(REST << self._failures - 1, LONGEST_REST))
        elif self._pulses >= HELD:
            self._change(None)
        else:
            self._failures = 0
        return None if self._before is None else self._cpus[self._next % len(self._cpus)]

    def _change(self, before: Pulse | None, rest: int = 0) -> None:
        self._before, self._rest, self._pulses = before, rest, 0


def _pays(pulse: Pulse, before: Pulse) -> bool:
    if not pulse.done:
        return False
    return pulse.cost <= CHEAPER * before.cost and pulse.rate >= SLOWER * before.rate
