"""The benchmark's entry: `python -m benchmarks.run [--case NAME]`, or `make bench [CASE=NAME]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks import HERE, ROOT, report
from benchmarks.cases import CASES, Case, Point, resized
from benchmarks.headline import headline, put
from benchmarks.installing import Http, Installed, Missing, install, install_http
from benchmarks.measure import BadRun, Run, Sample, measure
from benchmarks.peers import Peer, Where
from benchmarks.places import Place, started, why_not
from benchmarks.python_build import Build, python_build, python_version
from benchmarks.results import CaseResult, PointResult
from benchmarks.server import Server
from support.samples import FOLDER as SAMPLES

# Seconds a run may take, and the load from which on other work spoils it.
LONG: Final = 1800.0
SHORT: Final = 120.0
BUSY: Final = 0.5
# The first word of a case's name may be asked for as well: all that begin with it.
GROUPS: Final = ("http", "redis", "kafka")
RESULTS: Final = HERE / "RESULTS.md"
README: Final = ROOT / "README.md"


def main() -> int:
    """Run the cases asked for, print their tables, write them down."""
    asked = _arguments()
    cases = [resized(case, asked.messages, asked.repeats) for case in CASES if is_asked(case, asked.case)]
    ready, missing = _install(cases)
    http = _install_http(cases)
    for peer, why in missing.items():
        _tell(f"missing: {peer.name} ({why})")
    if python_build() is Build.PLAIN:
        _tell(f"this Python was {Build.PLAIN}, so it is slower than most; name another with PYTHON=…")
    load = os.getloadavg()[0]
    if load > BUSY:
        _tell(f"this machine is busy (load {load:.1f}): do not trust the figures")
    brokers = dict.fromkeys(peer.where for peer in ready)
    _tell(f"starting private brokers: {', '.join(brokers)}")
    with (
        tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder,
        started(brokers, Path(folder)) as places,
    ):
        called: list[CaseResult] = []
        for case in cases:
            result, served = _run_case(places, Path(folder), case, ready, missing, http)
            versions = {**_versions(places, case, ready), **served}
            section = report.section(result, datetime.now(UTC), load, versions)
            print(f"\n{section}", flush=True)
            # After each case, so that a run that is stopped keeps what it has measured.
            report.write(asked.results, {case.name: section})
            called += [result] if case.handler.calls else []
        # The README shows what RESULTS.md does, so only a run that wrote there changes it.
        if asked.results == RESULTS and (text := headline(called, datetime.now(UTC))):
            put(README, text)
    return 0


def _arguments() -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument(
        "--case",
        action="append",
        choices=[*names, *GROUPS],
        help=f"a case, or {' or '.join(GROUPS)} for all that begin so; may be repeated (default: all)",
    )
    parser.add_argument("--messages", type=int, help="messages per run instead of the case's own number")
    parser.add_argument("--repeats", type=int, help="rounds instead of the case's own number")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables are kept")
    asked = parser.parse_args()
    asked.case = asked.case or names
    return asked


def _install(cases: list[Case]) -> tuple[dict[Peer, Installed], dict[Peer, str]]:
    """Everybody the cases need, and why some are not here."""
    ready: dict[Peer, Installed] = {}
    missing: dict[Peer, str] = {}
    for peer in dict.fromkeys(peer for case in cases for peer in _contenders(case)):
        _tell(f"finding or installing {peer.name}")
        try:
            if absent := why_not(peer.where):
                raise Missing(absent)
            ready[peer] = install(peer)
        except Missing as why:
            missing[peer] = str(why)
    return ready, missing


def _install_http(cases: list[Case]) -> Http | None:
    """What handlers with HTTP need; None if nobody needs it, or if it is missing: then their case is."""
    if not any(case.handler.calls for case in cases):
        return None
    _tell("finding or installing HTTP clients and the server")
    try:
        return install_http()
    except Missing as why:
        _tell(f"missing: HTTP ({why})")
        return None


def is_asked(case: Case, asked: list[str]) -> bool:
    """Whether the case is meant by one of these names."""
    return case.name in asked or case.name.partition("-")[0] in {*asked} & {*GROUPS}


def _contenders(case: Case) -> list[Peer]:
    return list(dict.fromkeys([*case.contenders, *(peer for point in case.points for peer in point.also)]))


def _versions(places: Mapping[Where, Place], case: Case, ready: Mapping[Peer, Installed]) -> dict[str, str]:
    """Of the brokers, of Python, and of everybody who takes part."""
    found: dict[str, str] = {}
    for where in dict.fromkeys(peer.where for peer in _contenders(case) if peer in ready):
        found |= places[where].versions
    found["Python"] = python_version()
    for peer in _contenders(case):
        if peer in ready:
            found |= ready[peer].versions
    return found


def _run_case(
    places: Mapping[Where, Place],
    folder: Path,
    case: Case,
    ready: Mapping[Peer, Installed],
    missing: Mapping[Peer, str],
    http: Http | None,
) -> tuple[CaseResult, dict[str, str]]:
    """What came out, and the versions of what answered the calls, with what that used itself."""
    if case.handler.calls and http is None:
        absent = dict.fromkeys(_contenders(case), "the HTTP server or its clients cannot be installed")
        return CaseResult(case, (), absent), {}
    with contextlib.ExitStack() as ours:
        server = ours.enter_context(Server(http, case.answer)) if http and case.handler.calls else None
        result = _run_points(places, folder, case, ready, missing, server)
        return result, _about(http, server) if http and server else {}


def _about(http: Http, server: Server) -> dict[str, str]:
    each = f"{server.cpu() / max(1, server.posts()) * 1e6:.0f} µs of CPU for a request"
    return {**http.versions, "the HTTP server": each}


def _run_points(
    places: Mapping[Where, Place],
    folder: Path,
    case: Case,
    ready: Mapping[Peer, Installed],
    missing: Mapping[Peer, str],
    server: Server | None,
) -> CaseResult:
    body = (SAMPLES / case.sample).read_bytes()
    keys = _keys(case.keys, folder) if case.keys else None
    points = tuple(_run_point(places, case, point, ready, body, keys, server) for point in case.points)
    absent = {peer: why for peer, why in missing.items() if peer in _contenders(case)}
    return CaseResult(case, points, absent)


def _run_point(
    places: Mapping[Where, Place],
    case: Case,
    point: Point,
    ready: Mapping[Peer, Installed],
    body: bytes,
    keys: Path | None,
    server: Server | None,
) -> PointResult:
    """All rounds of one concurrency. Who fails once is out: its rounds would no longer pair up."""
    samples: dict[Peer, list[Sample]] = {
        peer: [] for peer in (*case.contenders, *point.also) if peer in ready
    }
    failures: dict[Peer, str] = {}
    for turn in range(case.repeats):
        for peer in _rotated(list(samples), turn):
            if peer in failures:
                continue
            count = max(1, int(point.messages * peer.share))
            step = count // case.steps if case.steps else None
            timeout = LONG if case.steps else SHORT
            run = Run(
                ready[peer], case.handler, point.concurrency, count, body, keys, step or None, timeout,
                peer.waiting, server,
            )  # fmt: skip
            try:
                sample = measure(places[peer.where], run)
            except BadRun as why:
                failures[peer] = str(why)
                _tell(f"{case.name} c={point.concurrency}: {peer.name} failed: {why}")
                continue
            samples[peer].append(sample)
            _tell(f"{case.name} c={point.concurrency} round {turn + 1}: {peer.name} {sample.rate:.0f}/s")
    done = {peer: tuple(found) for peer, found in samples.items() if peer not in failures}
    return PointResult(point, done, failures)


def _rotated(peers: list[Peer], turn: int) -> list[Peer]:
    """Another one begins in every round, so that nobody always runs on a rested machine."""
    at = turn % len(peers) if peers else 0
    return peers[at:] + peers[:at]


def _keys(name: str, folder: Path) -> Path:
    """A copy of the sample keys with the mode a key store must have, which git does not keep."""
    copy = folder / name
    shutil.copy(SAMPLES / name, copy)
    copy.chmod(0o600)
    return copy


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # TERM ends a run as Ctrl-C does, by the same way out: the broker and the consumer end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
