"""A change of how worker threads run, which is kept only as long as it brings something.

Rule 1: it is kept only as long as a message costs clearly less CPU than before and they are not handled more
        slowly. What was before is measured again from time to time.
Rule 2: after a trial that failed the next one comes later each time.
Rule 3: this file decides, and knows neither clock nor system (contention.py).
"""

from __future__ import annotations

from typing import Final

from chronicle.core.frozen import frozen

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
    def cpus(self) -> float:
        """How many of them were in use."""
        return self.cpu / self.seconds


class Trial:
    """Whether one change is on, pulse by pulse."""

    def __init__(self) -> None:
        self.failures = 0  # in a row
        self._before: Pulse | None = None  # the last pulse without it, while it is on
        self._pulses = 0  # how long it has been as it is
        self._rest = 0

    @property
    def on(self) -> bool:
        return self._before is not None

    def judge(self, pulse: Pulse, *, promising: bool) -> bool:
        """Choose for the next pulse by the last one, which went by as was chosen before."""
        self._pulses += 1
        if self._before is None:
            if self._pulses > self._rest and promising:
                self._change(pulse)
        elif not _pays(pulse, self._before):
            self.failures += 1
            self._change(None, min(REST << self.failures - 1, LONGEST_REST))
        elif self._pulses >= HELD:
            self._change(None)
        else:
            self.failures = 0
        return self.on

    def call_off(self) -> None:
        """What it was compared with is no longer so; that says nothing against it."""
        if self.on:
            self._change(None)

    def _change(self, before: Pulse | None, rest: int = 0) -> None:
        self._before, self._rest, self._pulses = before, rest, 0


def _pays(pulse: Pulse, before: Pulse) -> bool:
    if not pulse.done:
        return False
    return pulse.cost <= CHEAPER * before.cost and pulse.rate >= SLOWER * before.rate
