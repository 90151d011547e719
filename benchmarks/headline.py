"""The part of the README that says how fast it is: written here, from one run of all `http` cases.

Rule: it is replaced as a whole or left alone; a run of some of the cases does not touch it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from benchmarks.cases import CASES, Case, Metric
from benchmarks.peers import CHRONICLE, PROCA, Handler
from benchmarks.python_build import python_version
from benchmarks.report import machine, ranged
from benchmarks.results import CaseResult, figure, ratio

CONCURRENCY: Final = 50
BEGIN, END = "<!-- http: written by make bench -->\n", "<!-- http: end -->\n"
HEAD: Final = """## How fast it is

Messages per second from RabbitMQ, each with a real HTTP request, {concurrency} at a time, in one process. The
broker, the server and the consumer shared a machine: {machine}, Python {python}, {when:%Y-%m-%d}.
[All results](benchmarks/RESULTS.md) are from `make bench`.

| a syncer that is | the server answers | chronicle | @proca/queue, with Node's fetch | times as fast |
|---|---|---|---|---|
"""
CLIENTS: Final = {Handler.ASYNC_HTTP: "async, with aiohttp", Handler.SYNC_HTTP: "sync, with urllib3"}


def headline(results: Sequence[CaseResult], when: datetime) -> str:
    """The section, or nothing if this run has not measured everything in it."""
    measured = {result.case.name: result for result in results}
    if not all(case.name in measured for case in CASES if case.handler.calls):
        return ""
    rows = [_row(measured[case.name]) for case in CASES if case.handler.calls]
    if not all(rows):
        return ""
    head = HEAD.format(concurrency=CONCURRENCY, machine=machine(), python=python_version(), when=when)
    return head + "".join(f"{row}\n" for row in rows) + "\n"


def _row(result: CaseResult) -> str:
    case = result.case
    for point in result.points:
        ours, theirs = point.samples.get(CHRONICLE, ()), point.samples.get(PROCA, ())
        if point.point.concurrency == CONCURRENCY and ours and theirs:
            rates = [f"{figure(Metric.RATE, samples).middle:.0f}" for samples in (ours, theirs)]
            compared = ratio(Metric.RATE, ours, theirs)
            times = ranged(compared, 1, 1) if compared else ""
            cells = (CLIENTS[case.handler], _answers(case), *rates, times)
            return f"| {' | '.join(cells)} |"
    return ""


def _answers(case: Case) -> str:
    if not case.answer:
        return "at once"
    return f"after {case.answer * 1000:.0f} ms, so {case.ceiling(CONCURRENCY):.0f} at most"


def put(file: Path, text: str) -> None:
    """Put the section between its marks."""
    before, begin, rest = file.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{file.name} has no place for the results of http")
    file.write_text(before + begin + text + end + after)
