"""The tables: Markdown, the same on the screen and in RESULTS.md.

Rule: RESULTS.md is written here and not by hand. It has one section per case, each with its own date,
machine and versions; a run replaces the sections of the cases it ran and leaves the others alone.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.cases import CASES, Metric
from benchmarks.measure import Sample
from benchmarks.peers import CHRONICLE
from benchmarks.results import CaseResult, PointResult, Spread, figure, find, ratio

HEAD: Final = """# Results

Written by `make bench`; do not edit. Only ratios from one run mean something: machines differ and are noisy.
Every figure is the median of its rounds, with the lowest and the highest in brackets. The consumers take
turns in every round, and a ratio divides figures of the same round; "chronicle ÷ it" is about messages per
second. Where every message waits, nobody can handle more than c ÷ the wait in a second: a wish beyond that is
out of reach. How it is measured stands at the head of [measure.py](measure.py), who takes part in
[peers.py](peers.py), what is wanted in [cases.py](cases.py).
"""
SECTION: Final = re.compile(r"^<!-- case: (\S+) -->$", re.MULTILINE)
NAMES: Final = {
    Metric.RATE: "messages/s",
    Metric.CPU: "CPU per message",
    Metric.PEAK: "peak memory",
    Metric.FIRST: "exec to first message",
}


def section(result: CaseResult, when: datetime, load: float, versions: Mapping[str, str]) -> str:
    """Everything about one case."""
    case = result.case
    facts = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        f"## {case.name}",
        "",
        case.about,
        "",
        f"{when:%Y-%m-%d %H:%M} UTC, {machine()}, load before {load:.1f}. {facts}. Rounds: {case.repeats}.",
        "",
    ]
    if case.steps:
        lines += _steps(result)
    else:
        lines += _table(result)
        lines += _wishes(result)
    for peer, why in result.missing.items():
        lines.append(f"Missing: {peer.name} ({_public(why)}).")
    for point in result.points:
        for peer, why in point.failures.items():
            lines.append(f"Failed at c = {point.point.concurrency}: {peer.name} ({_public(why)}).")
    return "\n".join(lines).rstrip() + "\n"


def _table(result: CaseResult) -> Iterator[str]:
    yield "| c | consumer | messages | messages/s | CPU µs each | peak MB | exec to first | chronicle ÷ it |"
    yield "|---|---|---|---|---|---|---|---|"
    for point in result.points:
        # The same command at another broker is called chronicle as well.
        ours = next((found for peer, found in point.samples.items() if peer.name == CHRONICLE.name), ())
        for peer, samples in point.samples.items():
            if not samples:
                continue
            compared = None if samples is ours else ratio(Metric.RATE, ours, samples)
            cells = (
                str(point.point.concurrency),
                peer.name,
                str(samples[0].messages),
                ranged(figure(Metric.RATE, samples), 1, 0),
                ranged(figure(Metric.CPU, samples), 1e6, 0),
                ranged(figure(Metric.PEAK, samples), 1e-6, 0),
                ranged(figure(Metric.FIRST, samples), 1, 2) + " s",
                ranged(compared, 1, 2) if compared else "",
            )
            yield f"| {' | '.join(cells)} |"
    yield ""


def _wishes(result: CaseResult) -> Iterator[str]:
    findings = [
        (point, find(point, want, result.case.ceiling(point.point.concurrency)))
        for point in result.points
        for want in point.point.wants
    ]
    if not findings:
        return
    yield "| c | chronicle's … | divided by | wanted | measured | |"
    yield "|---|---|---|---|---|---|"
    for point, found in findings:
        whom = found.to.name if found.to else " or ".join(peer.name for peer in found.want.to)
        what = NAMES[found.want.metric]
        if found.want.of.name != CHRONICLE.name:
            what += f" ({found.want.of.name})"
        sign = "≥" if found.want.metric.more_is_better else "≤"
        measured = ranged(found.ratio, 1, 2) if found.ratio else ""
        yield (
            f"| {point.point.concurrency} | {what} | {whom} "
            f"| {sign} {found.want.bound:g} | {measured} | {found.word} |"
        )
    yield ""


def _steps(result: CaseResult) -> Iterator[str]:
    """The long run, step by step, and how flat it was."""
    for point in result.points:
        for samples in point.samples.values():
            for sample in samples:
                yield from _one_long_run(point, sample)


def _one_long_run(point: PointResult, sample: Sample) -> Iterator[str]:
    yield "| messages done | messages/s | CPU µs each | resident MB |"
    yield "|---|---|---|---|"
    # The second mark is the first acknowledgement, which belongs to the first step.
    marks = [sample.marks[0], *sample.marks[2:]]
    costs: list[float] = []
    for before, after in pairwise(marks):
        begun = sample.messages if before.left is None else before.left
        done = begun - (after.left or 0)
        costs.append((after.used.cpu - before.used.cpu) / done)
        yield (
            f"| {sample.messages - (after.left or 0)} | {done / (after.at - before.at):.0f} "
            f"| {costs[-1] * 1e6:.1f} | {after.used.resident / 1e6:.1f} |"
        )
    yield ""
    half = len(costs) // 2
    early, late = sum(costs[:half]), sum(costs[-half:])
    growth = marks[-1].used.resident / marks[1].used.resident
    # A run too short for the clock's tick has used nothing as far as anybody can tell.
    cost = f"{late / early:.2f}" if early else "not measurable"
    yield (
        f"c = {point.point.concurrency}. Memory at the end ÷ after the first step: {growth:.3f}. "
        f"CPU per message, second half ÷ first half: {cost}."
    )
    yield ""


def ranged(found: Spread, scale: float, digits: int) -> str:
    """A figure with its lowest and its highest in brackets."""
    middle, low, high = (f"{value * scale:.{digits}f}" for value in (found.middle, found.low, found.high))
    return middle if low == high else f"{middle} ({low}–{high})"


def _public(why: str) -> str:
    """A reason without the addresses and folders of this machine: the page is for everybody."""
    return re.sub(r"\w+://\S+|(?<![\w@/])/(?:[^\s/]+/)+", "…", why)


def machine() -> str:
    """What this runs on."""
    about = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", about, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Linux {platform.release()}"
    )


def write(file: Path, sections: Mapping[str, str]) -> None:
    """Put these sections, by case, into the file; the others stay, all in the order of the cases."""
    old = file.read_text() if file.exists() else ""
    found = SECTION.split(old)[1:]
    kept = dict(zip(found[::2], found[1::2], strict=True)) | dict(sections)
    known = [case.name for case in CASES if case.name in kept]
    body = "".join(f"\n<!-- case: {name} -->\n{kept[name].strip()}\n" for name in known)
    file.write_text(HEAD + body)
