"""The benchmark's arithmetic and its page: what is compared with what, and what a run may overwrite."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from benchmarks import ROOT
from benchmarks.cases import CASES, PYTHON, Case, Metric, Point, Want
from benchmarks.headline import BEGIN, END, headline, put
from benchmarks.measure import Mark, Sample
from benchmarks.peers import (
    AIO_PIKA,
    BARE_REDIS,
    CHRONICLE,
    CHRONICLE_REDIS,
    FASTSTREAM,
    FASTSTREAM_REDIS,
    HELD,
    LIMIT,
    PROCA,
    Handler,
    Peer,
    Where,
    faststream_load,
)
from benchmarks.proc import Usage
from benchmarks.python_build import Build, python_build, python_version
from benchmarks.report import machine, section, write
from benchmarks.results import CaseResult, PointResult, find, ratio
from benchmarks.run import is_asked
from benchmarks.streams import StreamWatch

WHEN: Final = datetime(2026, 3, 2, 10, 11, tzinfo=UTC)


def sample(rate: float, *, cpu: float = 0.0001, peak: int = 30_000_000, first: float = 0.2) -> Sample:
    """A run of a thousand messages with these figures."""
    begun = Mark(None, 100.0 + first, Usage(1.0, peak, peak))
    ended = Mark(0, 100.0 + first + 1000 / rate, Usage(1.0 + 1000 * cpu, peak, peak))
    return Sample(1000, 100.0, (begun, Mark(999, 100.0 + first, begun.used), ended))


def result(*wants: Want, **rates: float) -> PointResult:
    peers: dict[str, Peer] = {"ours": CHRONICLE, "proca": PROCA, "aio": AIO_PIKA, "fast": FASTSTREAM}
    samples = {peers[name]: (sample(rate),) for name, rate in rates.items()}
    return PointResult(Point(10, 1000, wants), samples, {})


def test_a_ratio_divides_figures_of_the_same_round() -> None:
    """A machine that slows down between rounds changes both, and the ratio of neither."""
    ours = (sample(8000), sample(4000), sample(2000))
    theirs = (sample(4000), sample(2000), sample(1000))
    found = ratio(Metric.RATE, ours, theirs)
    assert found is not None
    assert (found.low, found.middle, found.high) == pytest.approx((2, 2, 2))


def test_a_wish_compares_with_the_best_of_those_it_names() -> None:
    want = Want(Metric.RATE, PYTHON, 4)
    found = find(result(want, ours=8000, proca=7000, aio=4000, fast=1000), want)
    assert found.to is AIO_PIKA
    assert found.ratio is not None
    assert found.ratio.middle == pytest.approx(2)
    assert found.word == "missed"


@pytest.mark.parametrize(
    ("handler", "answer", "word"),
    [
        (Handler.ASYNC_WAIT, 0.0, "out of reach: 1.25 at most"),  # 10 ÷ 5 ms are 2000 a second
        (Handler.ASYNC_HTTP, 0.004, "missed"),  # 10 ÷ 4 ms are 2500
        (Handler.ASYNC_HTTP, 0.0, "missed"),
        (Handler.ASYNC_NOOP, 0.0, "missed"),
    ],
)
def test_a_wish_that_nobody_can_fulfil_is_told_from_one_that_was_missed(
    handler: Handler, answer: float, word: str
) -> None:
    case = Case("waits", "About.", handler, (CHRONICLE,), (Point(10, 1000),), answer=answer)
    want = Want(Metric.RATE, (PROCA,), 1.5)
    found = find(result(want, ours=1900, proca=1600), want, case.ceiling(10))
    assert found.word == word
    assert word in section(CaseResult(case, (result(want, ours=1900, proca=1600),), {}), WHEN, 0.1, {})


def test_a_wait_leaves_no_wish_about_anything_but_rates_out_of_reach() -> None:
    want = Want(Metric.CPU, (PROCA,), 0.5)
    found = find(result(want, ours=1900, proca=1600), want, 2000)
    assert found.word == "missed"


def test_less_is_better_for_everything_but_rates() -> None:
    want = Want(Metric.FIRST, (PROCA, AIO_PIKA), 1.5)
    samples = {
        CHRONICLE: (sample(1, first=0.3),),
        PROCA: (sample(1, first=0.25),),
        AIO_PIKA: (sample(1, first=0.5),),
    }
    found = find(PointResult(Point(10, 1000), samples, {}), want)
    assert found.to is PROCA
    assert found.word == "met"


def test_what_did_not_run_is_named_and_not_guessed() -> None:
    want = Want(Metric.RATE, (LIMIT,), 0.6)
    case = Case("async-noop", "About.", Handler.ASYNC_NOOP, (CHRONICLE,), (Point(10, 1000, (want,)),))
    text = section(CaseResult(case, (result(want, ours=8000),), {LIMIT: "no cc"}), WHEN, 0.1, {"Python": "3"})
    assert "not measured" in text
    assert "Missing: C, the limit (no cc)." in text
    assert "2026-03-02 10:11 UTC" in text


def test_a_reason_names_no_address_and_no_folder() -> None:
    case = Case("async-noop", "About.", Handler.ASYNC_NOOP, (CHRONICLE,), (Point(10, 1000),))
    why = "npm install @proca/queue failed: GET https://host.example/x in /home/ada/bench/limit.c"
    text = section(CaseResult(case, (result(ours=8000),), {PROCA: why}), WHEN, 0.1, {})
    assert "Missing: @proca/queue (npm install @proca/queue failed: GET … in …limit.c)." in text


def test_a_long_run_is_told_step_by_step() -> None:
    """The issue's "no slow leak": memory and cost per message for each part of one run."""
    used = [Usage(1.0, 30_000_000, 0), Usage(1.0, 30_000_000, 0), Usage(2.0, 30_000_000, 0)]
    marks = (
        Mark(None, 0.0, used[0]),
        Mark(999, 0.1, used[1]),
        Mark(500, 1.0, used[2]),
        Mark(0, 2.0, Usage(4.0, 33_000_000, 0)),
    )
    case = Case("leak", "About.", Handler.ASYNC_NOOP, (CHRONICLE,), (Point(50, 1000),), steps=2)
    point = PointResult(case.points[0], {CHRONICLE: (Sample(1000, 0.0, marks),)}, {})
    text = section(CaseResult(case, (point,), {}), WHEN, 0.1, {})
    assert "| 500 | 500 | 2000.0 | 30.0 |" in text
    assert "| 1000 | 500 | 4000.0 | 33.0 |" in text
    assert "after the first step: 1.100" in text
    assert "second half ÷ first half: 2.00" in text


def test_a_run_replaces_its_own_sections_only(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    write(file, {"leak": "## leak\nold\n", "logs": "## logs\nkept\n"})
    write(file, {"leak": "## leak\nnew\n"})
    text = file.read_text()
    assert "old" not in text
    assert text.index("kept") < text.index("new")
    assert text.count("# Results\n") == 1


def test_every_kind_of_broker_shows_that_a_long_queue_is_not_felt() -> None:
    cases = {case.name: case for case in CASES}
    for where in Where:
        (point,) = cases["kafka-flat" if where is Where.KAFKA else "backlog"].points
        found = [want for want in point.wants if want.of.where is where]
        assert {(want.metric, want.bound) for want in found} == {(Metric.RATE, 0.8), (Metric.CPU, 1.25)}
        for want in found:
            assert [peer.where for peer in want.to] == [where]
            assert want.of.waiting >= 10 * want.to[0].waiting >= 10 * point.messages


def test_http_is_measured_async_and_sync_and_with_a_server_that_takes_its_time() -> None:
    """A real request per message at c = 10, 50, 100; at least 2.5 (async) and 1.5 (sync) times."""
    cases = [case for case in CASES if case.handler.calls]
    assert {(case.handler, case.answer) for case in cases} == {
        (handler, answer) for handler in (Handler.ASYNC_HTTP, Handler.SYNC_HTTP) for answer in (0.0, 0.02)
    }
    for case in cases:
        assert case.name.startswith("http-")
        assert [point.concurrency for point in case.points] == [10, 50, 100]
        wanted = 2.5 if case.handler is Handler.ASYNC_HTTP else 1.5
        for point in case.points:
            (rate,) = (want for want in point.wants if want.metric is Metric.RATE)
            assert rate.to == (PROCA,)
            # With ten at once and 20 ms for an answer nobody can be faster than 500 per second.
            assert rate.bound == (0.95 if case.answer and point.concurrency == 10 else wanted)


def measured(case: Case, ours: float, theirs: float) -> CaseResult:
    points = tuple(
        PointResult(point, {CHRONICLE: (sample(ours),), PROCA: (sample(theirs),)}, {})
        for point in case.points
    )
    return CaseResult(case, points, {})


def test_the_readme_shows_http_from_one_run_of_all_its_cases(tmp_path: Path) -> None:
    """The README shows the row with its machine and date."""
    results = [measured(case, 3000, 1000) for case in CASES if case.handler.calls]
    text = headline(results, WHEN)
    assert "| async, with aiohttp | at once | 3000 | 1000 | 3.0 |" in text
    assert "| sync, with urllib3 | after 20 ms, so 2500 at most | 3000 | 1000 | 3.0 |" in text
    assert f"{machine()}, Python {python_version()}, 2026-03-02." in text
    assert headline(results[:-1], WHEN) == ""
    assert headline([*results[:-1], CaseResult(results[-1].case, (), {})], WHEN) == ""

    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    for words in ("old\n", text):
        put(readme, words)
    assert readme.read_text().count("## How fast it is") == 1
    assert "old" not in readme.read_text().partition(BEGIN)[2].partition(END)[0]
    assert readme.read_text().endswith((ROOT / "README.md").read_text().partition(END)[2])


def test_a_wish_may_be_about_somebody_else_than_chronicle() -> None:
    want = Want(Metric.RATE, (PROCA,), 0.8, of=AIO_PIKA)
    case = Case("backlog", "About.", Handler.ASYNC_NOOP, (PROCA, AIO_PIKA), (Point(10, 1000, (want,)),))
    text = section(CaseResult(case, (result(want, proca=4000, aio=3000),), {}), WHEN, 0.1, {})
    assert "| 10 | messages/s (aio-pika) | @proca/queue | ≥ 0.8 | 0.75 | missed |" in text


def test_every_wish_names_somebody_who_runs_in_its_case() -> None:
    for case in CASES:
        for point in case.points:
            running = {*case.contenders, *point.also}
            for want in point.wants:
                assert want.of in running, case.name
                assert running & set(want.to), case.name


def test_a_group_of_cases_may_be_asked_for_by_its_first_word() -> None:
    asked = [case.name for case in CASES if is_asked(case, ["redis", "leak"])]
    assert asked == ["redis-async", "redis-sync", "redis-flat", "leak"]
    # The others have names of their own, not groups: "async" is nobody.
    assert not [case for case in CASES if is_asked(case, ["async"])]


def test_redis_is_compared_with_faststream_and_with_a_bare_loop_of_the_same_window() -> None:
    wanted = {
        (case.name, point.concurrency, want.to, want.bound)
        for case in CASES
        for point in case.points
        for want in point.wants
        if want.of is CHRONICLE_REDIS
    }
    assert wanted == {
        ("redis-async", 10, (FASTSTREAM_REDIS,), 8),
        ("redis-async", 10, (BARE_REDIS,), 0.6),
        ("redis-async", 50, (FASTSTREAM_REDIS,), 12),
        ("redis-async", 50, (BARE_REDIS,), 0.6),
        ("redis-sync", 10, (FASTSTREAM_REDIS,), 6),
    }
    assert CHRONICLE_REDIS.command is CHRONICLE.command


def test_at_redis_neither_a_long_stream_nor_a_long_pending_list_is_felt() -> None:
    (case,) = (case for case in CASES if case.name == "redis-flat")
    (point,) = case.points
    plain, long, held = case.contenders
    assert {(want.metric, want.to, want.bound, want.of) for want in point.wants} == {
        (Metric.CPU, (plain,), 1.15, other) for other in (long, held)
    }
    assert long.waiting == 10 * plain.waiting == 10 * held.waiting
    assert [peer.load(b"{}", "q").held for peer in case.contenders] == [0, 0, HELD]


def test_chronicle_at_redis_is_ours_in_the_tables() -> None:
    want = Want(Metric.RATE, (BARE_REDIS,), 0.6, of=CHRONICLE_REDIS)
    case = Case("redis-async", "About.", Handler.ASYNC_NOOP, (CHRONICLE_REDIS, BARE_REDIS), ())
    samples = {CHRONICLE_REDIS: (sample(3000),), BARE_REDIS: (sample(4000),)}
    point = PointResult(Point(10, 1000, (want,)), samples, {})
    text = section(CaseResult(case, (point,), {}), WHEN, 0.1, {})
    assert "| 10 | messages/s | redis-py, a bare loop | ≥ 0.6 | 0.75 | met |" in text
    assert text.count("0.20 s | 0.75 |") == 1


def test_faststream_finds_the_action_behind_its_headers() -> None:
    load = faststream_load(b'{"a": 1}', "q")
    (body,) = load.bodies
    start = int.from_bytes(body[14:18], "big")
    assert load.body_field == "__data__"
    assert body[:10] == b"\x89BIN\r\n\x1a\n\0\1"
    assert body[start:] == b'{"a": 1}'


def test_a_stream_is_watched_by_what_its_group_has_read_and_not_settled() -> None:
    """What another consumer was given before counts neither as read nor as left."""
    counts = iter([(100, 100), (120, 120), (120, 119), (150, 105), (150, 100)])

    class Client:
        def xinfo_groups(self, _stream: str) -> list[dict[str, int]]:
            read, pending = next(counts)
            return [{"entries-read": read, "pending": pending}]

    watch = StreamWatch(Client(), "q", 50, [49, 0], 100, 100)
    seen = [[moment.left for moment in watch.moments()] for _ in range(5)]
    assert seen == [[], [None], [None, 49], [None, 49], [None, 49, 0]]


@pytest.mark.parametrize(
    ("prefix", "arguments", "build"),
    [
        ("/usr", "'--enable-shared'", Build.DISTRIBUTION),
        ("/usr/local", "'--enable-shared' '--enable-optimizations' '--with-lto'", Build.PROFILED),
        ("/home/me/.pyenv/versions/3.11.7", "'--enable-shared'", Build.PLAIN),
        ("/opt/python", "", Build.PLAIN),
    ],
)
def test_a_python_that_was_not_built_for_speed_is_told(prefix: str, arguments: str, build: Build) -> None:
    """It costs every Python consumer a quarter and the reference nothing, so the page says which it was."""
    assert python_build(prefix, arguments) is build


def test_the_page_says_how_its_python_was_built() -> None:
    assert python_version().endswith(f"({python_build()})")
