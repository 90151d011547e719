"""A line about a run's progress every so often; the clock is passed in."""

from __future__ import annotations

import math

import pytest

from chronicle.core.units import roughly
from chronicle.engine.progress import Progress
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from support.running import Notebook
from support.scripted import ScriptedTransport


def test_a_line_every_minute_with_rates_and_gauges() -> None:
    notebook, counters, transport = Notebook(), Counters(), ScriptedTransport(*[b"x"] * 1500)
    progress = Progress(60.0, transport, counters, notebook, 0.0)
    for now in range(1, 60):
        progress.tick(now)
    assert notebook.events == []
    assert counters.depth == 1500
    counters.ack = 600
    progress.tick(60.0)
    counters.ack, counters.inflight, counters.oldest = 660, 2, 75.0
    counters.brake, counters.held, counters.unsettled = "10 messages failed alike", 22, 3
    progress.tick(120.0)
    first, second = notebook.facts(events.PROGRESS)
    assert (first["rate"], first["rate_overall"], first["depth"], first["ack"]) == (10.0, 10.0, 1500, 600)
    assert (second["rate"], second["rate_overall"], second["oldest_ms"]) == (1.0, 5.5, 75000)
    assert second["brake"] == "10 messages failed alike"
    assert "brake" not in first
    assert [(told["held"], told["unsettled"]) for told in (first, second)] == [(0, 0), (22, 3)]
    assert notebook.texts(events.PROGRESS)[1] == (
        "660 handled, 1.0/s, 5.5/s overall, 1,500 waiting, 2 in flight, 22 held, 3 unsettled, the oldest "
        "for 1m 15s, braking: 10 messages failed alike"
    )


def test_without_an_interval_nobody_asks_the_broker() -> None:
    class Asked(ScriptedTransport):
        @property
        def depth(self) -> int | None:
            raise AssertionError("nobody wants to know")

    notebook = Notebook()
    Progress(0.0, Asked(), Counters(), notebook, 0.0).tick(1e6)
    assert notebook.events == []


def test_a_live_view_wants_the_gauges_and_no_lines() -> None:
    notebook, counters = Notebook(), Counters()
    Progress(math.inf, ScriptedTransport(b"x"), counters, notebook, 0.0).tick(1e6)
    assert (counters.depth, notebook.events) == (1, [])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0s"), (3.21, "3.2s"), (3, "3s"), (42.4, "42s"), (60, "1m"), (252, "4m 12s"), (3900, "1h 5m"),
     (86400 * 2 + 3600, "2d 1h")],
)  # fmt: skip
def test_times_are_told_as_people_say_them(seconds: float, words: str) -> None:
    assert roughly(seconds) == words
