"""What came out of a case, and the ratios in it. Pure: nothing here runs or prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import Case, Metric, Point, Want
from benchmarks.measure import Sample
from benchmarks.peers import Peer


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the rounds of one run."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PointResult:
    """The samples of each consumer, one per round, and why one has none."""

    point: Point
    samples: Mapping[Peer, tuple[Sample, ...]]
    failures: Mapping[Peer, str]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A whole case; `missing` are peers that could not be installed."""

    case: Case
    points: tuple[PointResult, ...]
    missing: Mapping[Peer, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a wish: with whom its subject was compared and the ratio, or None for both.

    `most` is the ratio that nobody can exceed, because every message takes so long whoever handles it.
    """

    want: Want
    to: Peer | None
    ratio: Spread | None
    most: float = math.inf

    @property
    def word(self) -> str:
        if self.ratio is None:
            return "not measured"
        if self.want.met(self.ratio.middle):
            return "met"
        return f"out of reach: {self.most:.2f} at most" if self.most < self.want.bound else "missed"


def spread(figures: list[float]) -> Spread:
    return Spread(median(figures), min(figures), max(figures))


def figure(metric: Metric, samples: tuple[Sample, ...]) -> Spread:
    """A consumer's figure over the rounds."""
    return spread([_value(metric, sample) for sample in samples])


def ratio(metric: Metric, ours: tuple[Sample, ...], theirs: tuple[Sample, ...]) -> Spread | None:
    """Ours divided by theirs, round by round, so that a change of the machine's speed falls out."""
    pairs = [(_value(metric, our), _value(metric, their)) for our, their in zip(ours, theirs, strict=False)]
    # A figure too small for the clock's tick divides nothing.
    usable = [our / their for our, their in pairs if their > 0]
    return spread(usable) if usable else None


def find(result: PointResult, want: Want, ceiling: float = math.inf) -> Finding:
    """Compare the subject of a wish, as a rule chronicle, with the best of those it names.

    `ceiling` is the rate that nobody can exceed.
    """
    ours = result.samples.get(want.of, ())
    rivals = [peer for peer in want.to if result.samples.get(peer)]
    if not ours or not rivals:
        return Finding(want, None, None)

    def standing(peer: Peer) -> float:
        middle = figure(want.metric, result.samples[peer]).middle
        return middle if want.metric.more_is_better else -middle

    best = max(rivals, key=standing)
    theirs = result.samples[best]
    most = ceiling / figure(Metric.RATE, theirs).middle if want.metric is Metric.RATE else math.inf
    return Finding(want, best, ratio(want.metric, ours, theirs), most)


def _value(metric: Metric, sample: Sample) -> float:
    value: float = getattr(sample, metric)
    return value
