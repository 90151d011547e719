"""The live view, drawn on recorded terminals."""

from __future__ import annotations

import io
import logging
import os

import pytest
from rich.text import Text

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action, Failed, Synced, Verdict
from chronicle.core.policy import ACKED
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.words import many
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.redaction import KNOWN
from chronicle.telemetry.safe_stream import SafeStream
from chronicle_cli.live import LINES_PER_DRAWING, LiveView, make_live_view
from chronicle_cli.pace import bar, sparkline
from chronicle_cli.terminal import console_on
from support.stalled import stalled_reader


class Clock:
    def __init__(self) -> None:
        self.now = 1_772_446_272.0

    def __call__(self) -> float:
        return self.now


def delivery() -> Delivery:
    return Delivery(b"{}", queue="cus.12.deliver", transport="rabbitmq")


def failed(reason: str, action: Action = Action.REQUEUE) -> Settlement:
    return Settlement(delivery(), Failed(reason), Verdict(action, reason), 0.1, 1001, fate=Fate.DONE)


def acked() -> Settlement:
    return Settlement(delivery(), Synced(), ACKED, 0.1, 1001, fate=Fate.DONE)


def view_on(
    width: int = 100, height: int = 30, no_color: bool = True, *, encoding: str = "utf-8", ends: bool = False
) -> tuple[LiveView, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    sink = SafeStream(stream)
    console = console_on(
        sink,
        encoding=encoding,
        force_terminal=True,
        width=width,
        height=height,
        no_color=no_color,
        color_system="standard",
        highlight=False,
        markup=False,
    )
    KNOWN.add("hunter2hunter2")
    title = "my_crm:sync ← cus.12.deliver at broker.test"
    view = LiveView(sink, console, logging.INFO, title, ends=ends, clock=clock)
    return view, stream, clock


def run_a_little(view: LiveView, clock: Clock) -> Counters:
    counters = Counters()
    counters.queued, counters.received, counters.inflight = 5000, 60, 7
    view.event(events.STARTING, logging.INFO, "starting", syncer="my_crm:sync")
    view.event(
        events.state_change("rabbitmq"), logging.DEBUG, "…", **{"from": "Consuming", "to": "Delivering"}
    )
    view.event(events.READY, logging.INFO, "consuming, 5000 waiting", queued=5000)
    batch = (
        [acked()] * 50 + [failed("the syncer returned False")] * 2 + [failed("not JSON", Action.DEAD_LETTER)]
    )
    for settlement in batch:
        counters.settled(settlement)
    clock.now += 2
    view.settled(batch)
    view.tick(counters)
    return counters


def test_design_5_the_view_shows_rates_work_and_what_failed_and_why() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    shown = stream.getvalue()
    for part in (
        "my_crm:sync ← cus.12.deliver at broker.test", "Delivering · up 0:00:02", "26/s now",
        "26/s on average", "7 in flight", "5,000 waiting at start", "50 acked", "60 received",
        "2 requeued", "1 dead-lettered",
        "2 × requeued: the syncer returned False", "1 × dead-lettered: not JSON",
    ):  # fmt: skip
        assert part in shown
    assert shown.count("requeued: the syncer returned False  action_id=1001") == 2
    assert "acked  action_id" not in shown
    before = len(shown)
    view.close(counters)
    last = stream.getvalue()[before:]
    assert "2 × requeued: the syncer returned False" in last
    assert [row.split() for row in last.splitlines() if "dead-lettered " in row] == [["dead-lettered", "1"]]
    assert "\x1b[?25h" in last


def test_what_is_passed_on_sealed_is_a_line_of_the_view_and_not_one_for_each_message() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    assert "sealed" not in stream.getvalue()
    sealed = acked()
    sealed.notes = ("personal data left sealed: there is no key store",)
    for _ in range(1200):
        counters.settled(sealed)
    view.settled([sealed] * 1200)
    clock.now += 1
    view.tick(counters)
    assert "1,200 passed to the syncer with personal data left sealed, see --keys" in stream.getvalue()
    assert "notes=" not in stream.getvalue()


@pytest.mark.parametrize("state", ["Delivering", "Receiving"])
def test_it_is_green_while_the_consumer_is_at_work_whatever_its_broker_calls_that(state: str) -> None:
    view, _, clock = view_on()

    def colour() -> str:
        (line,) = (part for part in view.drawing(Counters(), clock.now).renderables if state in str(part))
        assert isinstance(line, Text)
        return str(line.style)

    view.event(events.state_change("some"), logging.DEBUG, "…", **{"from": "Opening", "to": state})
    assert colour() == "yellow"
    view.event(events.READY, logging.INFO, "consuming")
    assert colour() == "green"
    view.event(events.LOST, logging.WARNING, "gone")
    assert colour() == "yellow"
    view.event(events.READY, logging.INFO, "consuming")
    view.event(events.STOPPING, logging.INFO, "stopping: enough")
    assert colour() == "yellow"


def test_the_view_is_drawn_at_most_eight_times_a_second() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    before = stream.getvalue()
    clock.now += 0.1
    view.tick(counters)
    assert stream.getvalue() == before
    clock.now += 0.1
    view.tick(counters)
    assert stream.getvalue() != before
    view.close(counters)


def test_a_flood_of_failures_is_counted_and_not_printed_line_by_line() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    before = len(stream.getvalue())
    for _ in range(10):
        view.settled([failed(f"reason {n}") for n in range(500)])
    clock.now += 1
    view.tick(counters)
    shown = stream.getvalue()[before:]
    assert shown.count("requeued: reason") <= LINES_PER_DRAWING + 5
    assert "… and 4980 more of these" in shown
    view.close(counters)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (5, 2), (12, 3), (40, 8), (400, 100)])
def test_the_view_survives_any_size_and_a_change_of_it(width: int, height: int) -> None:
    view, stream, clock = view_on(width, height)
    counters = run_a_little(view, clock)
    view._console.size = (80, 24)
    clock.now += 1
    view.tick(counters)
    view.close(counters)
    assert stream.getvalue()


def test_no_color_is_honoured() -> None:
    plain, colourful = view_on(no_color=True), view_on(no_color=False)
    for view, _, clock in (plain, colourful):
        view.close(run_a_little(view, clock))
    assert "\x1b[33m" not in plain[1].getvalue()
    assert "\x1b[33m" in colourful[1].getvalue()


def test_z4_z10_nothing_that_is_shown_steers_the_terminal_or_tells_a_secret() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    bad = "evil\r\n\x1b]0;title\x07\u202e[red]markup[/red] password=hunter2hunter2 hunter2hunter2"
    view.settled([failed(bad)])
    view.event("log", logging.ERROR, bad, trace=f"row one\n{bad}")
    clock.now += 1
    view.tick(counters)
    view.close(counters)
    shown = stream.getvalue()
    for part in ("\x1b]0;", "\x07", "\u202e", "evil\r", "hunter2"):
        assert part not in shown
    assert "[red]markup[/red]" in shown


def test_a_terminal_that_goes_away_ends_the_view_and_not_the_run() -> None:
    view, stream, clock = view_on()
    counters = run_a_little(view, clock)
    stream.close()
    clock.now += 1
    view.settled([failed("why")])
    view.event("log", logging.ERROR, "text")
    view.tick(counters)
    view.close(counters)


def test_x7_a_terminal_that_stalls_costs_drawings_and_is_told_of_lost_lines() -> None:
    with stalled_reader("terminal") as stalled, os.fdopen(stalled.writing, "w", closefd=False) as stream:
        stalled.fill()
        sink, clock = SafeStream(stream), Clock()
        console = console_on(sink, force_terminal=True, width=100, height=30, markup=False)
        view = LiveView(sink, console, logging.INFO, "title", clock=clock)
        counters = run_a_little(view, clock)
        while not sink.dropped:
            view.event("log", logging.ERROR, "x" * 1000)
        lost = sink.dropped
        kept = len(sink._kept)
        for _ in range(20):
            clock.now += 1
            view.tick(counters)
        assert len(sink._kept) == kept  # no drawing was added to what is kept
        while sink.is_behind:
            stalled.read()
            clock.now += 1
            view.tick(counters)
        stalled.read(quiet=1.0)  # so that there is room for all that follows
        view.close(counters)
        shown = stalled.read(quiet=1.0).decode()
    assert f"{many(lost, 'log line')} could not be written" in shown
    assert "acked" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("trouble")


def test_until_the_consumer_is_ready_there_is_no_view_that_could_hide_a_refusal() -> None:
    stream = io.StringIO()
    view = make_live_view(SafeStream(stream), logging.INFO, "title", color=False)
    view.event(events.STARTING, logging.INFO, "starting")
    view.tick(Counters())
    assert "\x1b[?25l" not in stream.getvalue()
    assert "starting" in stream.getvalue()


def rows(view: LiveView, counters: Counters, clock: Clock) -> dict[str, str]:
    """The rows of the view as it is now, by their names."""
    texts = [str(part) for part in view.drawing(counters, clock.now).renderables if isinstance(part, Text)]
    return {text[:9].strip(): text[9:] for text in texts}


def go_on(view: LiveView, counters: Counters, clock: Clock, *, seconds: int, rate: int) -> None:
    for _ in range(seconds):
        for _ in range(rate):
            counters.settled(acked())
        assert counters.depth is not None
        counters.depth -= rate
        clock.now += 1
        view.tick(counters)


def test_it_shows_what_waits_now_and_how_long_that_takes() -> None:
    view, _, clock = view_on(80, ends=True)
    counters = run_a_little(view, clock)
    counters.depth, counters.inflight, counters.oldest = 1000, 0, 75.0
    go_on(view, counters, clock, seconds=10, rate=50)
    shown = rows(view, counters, clock)
    assert shown["queue"] == "500 waiting now   5,000 at start"
    assert shown["work"] == "0 in flight   the oldest for 1m 15s"
    counters.oldest, counters.unsettled = 0.0, 13
    assert rows(view, counters, clock)["work"] == "0 in flight   13 unsettled"
    counters.unsettled = 0
    assert shown["rate"].startswith("50/s now   46/s on average   ")
    assert "█" in shown["rate"]
    assert "  about 10s left" in shown["progress"]
    assert all(len(row) + 9 <= 80 for row in shown.values())
    counters.depth = 0
    assert "100 %" in rows(view, counters, clock)["progress"]
    view.close(counters)


def test_a_queue_that_grows_has_no_time_left_and_says_so() -> None:
    view, _, clock = view_on()
    counters = run_a_little(view, clock)
    counters.depth = 1000
    go_on(view, counters, clock, seconds=10, rate=-3)
    assert "left" not in rows(view, counters, clock)["progress"]
    assert "growing by 3.0/s" in rows(view, counters, clock)["progress"]
    view.close(counters)


def test_on_the_brake_the_numbers_add_up_and_nobody_says_how_long() -> None:
    view, _, clock = view_on(80)
    counters = Counters()
    counters.queued = counters.depth = 100
    go_on(view, counters, clock, seconds=10, rate=2)
    counters.brake, counters.held, counters.received = "10 messages failed alike", 22, 42
    counters.depth = 58
    shown = rows(view, counters, clock)
    assert shown["work"] == "0 in flight   22 held"
    assert shown["done"] == "20 acked   42 received"
    assert shown["trouble"] == "intake pauses"
    assert "left" not in shown["progress"]
    assert shown["progress"].endswith("20 %  paused")
    counters.brake, counters.held = "", 0
    assert rows(view, counters, clock)["trouble"] == "none"
    view.close(counters)


def test_where_nobody_knows_what_waits_there_is_no_bar() -> None:
    view, _, clock = view_on(ends=True)
    counters = run_a_little(view, clock)
    shown = rows(view, counters, clock)
    assert shown["queue"] == "5,000 waiting at start"
    assert "progress" not in shown
    assert "brake" not in shown
    counters.brake = "10 messages failed alike"
    assert rows(view, counters, clock)["brake"] == "10 messages failed alike"
    view.close(counters)


@pytest.mark.parametrize("width", [40, 30])
def test_a_narrow_terminal_gets_fewer_facts_and_no_broken_rows(width: int) -> None:
    view, _, clock = view_on(width)
    counters = run_a_little(view, clock)
    counters.depth, counters.oldest = 1_234_567, 3.21
    go_on(view, counters, clock, seconds=10, rate=50)
    for name in ("rate", "work", "queue", "done", "progress"):
        assert len(rows(view, counters, clock)[name]) + 9 <= width
    view.close(counters)


def test_a_terminal_without_unicode_gets_plain_letters() -> None:
    view, stream, clock = view_on(ends=True, encoding="ascii")
    counters = run_a_little(view, clock)
    counters.depth = 1000
    go_on(view, counters, clock, seconds=10, rate=50)
    view.close(counters)
    shown = stream.getvalue()
    assert shown.isascii()
    assert "my_crm:sync <- cus.12.deliver" in shown
    assert "####" in shown
    assert "?" not in shown.replace("\x1b[?25", "")


def test_a_sparkline_is_as_high_as_its_highest_second() -> None:
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([0, 8], plain=True) == "_#"
    assert bar(0.5, 10) == "█████░░░░░"
    assert bar(2.0, 4, plain=True) == "####"
