"""How fast a run is: the rate now, its history, and the time left. Pure; the time is passed in."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from chronicle.telemetry.counters import Counters

WINDOW: Final = 5.0  # seconds that count as "now"
TREND: Final = 30.0  # seconds over which it shows whether the queue becomes shorter: brokers tell every few
SURE: Final = 4.0  # seconds before anything is said about that
HISTORY: Final = 30  # seconds in a sparkline
BLOCKS: Final = ("▁▂▃▄▅▆▇█", "_.-=+*%#")  # and where there is no Unicode
BAR: Final = ("█░", "#.")


class Sample(NamedTuple):
    """A moment of a run."""

    at: float
    handled: int
    depth: int | None
    left: int  # at the broker and here


class Pace:
    """What the last seconds brought."""

    def __init__(self, now: float) -> None:
        self._samples: deque[Sample] = deque([Sample(now, 0, None, 0)])
        self._second = self._samples[0]
        self.history: deque[float] = deque(maxlen=HISTORY)  # handled in each of the last seconds

    def sample(self, now: float, counters: Counters) -> None:
        """A few times a second."""
        latest = Sample(now, counters.handled, counters.depth, counters.left)
        self._samples.append(latest)
        while len(self._samples) > 2 and now - self._samples[0].at > TREND:
            self._samples.popleft()
        if now - self._second.at >= 1.0:
            self.history.append((latest.handled - self._second.handled) / (now - self._second.at))
            self._second = latest

    @property
    def rate(self) -> float:
        """Messages a second, now."""
        latest = self._samples[-1]
        then = next(one for one in self._samples if latest.at - one.at <= WINDOW)
        return (latest.handled - then.handled) / (latest.at - then.at) if latest.at > then.at else 0.0

    @property
    def shrinking(self) -> float:
        """By how many messages a second there is less to do; negative where there is more."""
        latest = self._samples[-1]
        first = next((one for one in self._samples if one.depth is not None), latest)
        seconds = latest.at - first.at
        return (first.left - latest.left) / seconds if seconds >= SURE else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Until the queue is empty, if it goes on like that."""
        latest, shrinking = self._samples[-1], self.shrinking
        if latest.depth is None or not latest.left or shrinking <= 0:
            return None
        return latest.left / shrinking


def sparkline(values: Sequence[float], *, plain: bool = False) -> str:
    """The values as a row of blocks, the highest one full."""
    blocks = BLOCKS[plain]
    most = max(values, default=0.0)
    if most <= 0:
        return blocks[0] * len(values)
    return "".join(blocks[min(len(blocks) - 1, int(value / most * len(blocks)))] for value in values)


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """So much of it is done."""
    full, empty = BAR[plain]
    filled = round(max(0.0, min(1.0, share)) * width)
    return full * filled + empty * (width - filled)
