"""The live view of a run: a few lines at the bottom of the terminal, redrawn continuously.

Rule 1: it is drawn from `tick`, by the pump, a few times a second; no thread of its own.
Rule 2: what needs attention is printed above it, a bounded number of lines; a plain ack is only counted.
Rule 3: if the terminal goes away, the view is lost, never the run; if it stalls, redraws are skipped, and
        lines too if it stalls for long.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import time
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from chronicle.core.settlement import Settlement
from chronicle.core.units import roughly
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.formats import (
    own_up,
    own_up_at_the_end,
    pretty,
    summary,
    tidy,
    tidy_facts,
    verdict_text,
)
from chronicle.telemetry.left_sealed import total
from chronicle.telemetry.safe_stream import SafeStream
from chronicle_cli.pace import Pace, bar, sparkline
from chronicle_cli.terminal import console_on, has_unicode

EVERY: Final = 1 / 8  # seconds between redraws
MARGIN: Final = 9  # columns for the names of rows
GAP: Final = 3  # columns between two facts
LINES_PER_DRAWING: Final = 20
REASONS_KEPT: Final = 200
REASONS_SHOWN: Final = 5
# What makes a consumer work, and what ends that; the names of its states are its broker's.
AT_WORK: Final = {events.READY: True, events.LOST: False, events.RETRY: False, events.STOPPING: False}
_STYLES: Final = ((logging.ERROR, "red"), (logging.WARNING, "yellow"), (logging.INFO, ""))


def make_live_view(sink: SafeStream, level: int, title: str, *, color: bool, ends: bool = False) -> LiveView:
    """The view on a terminal; `ends` when the run is to empty the queue."""
    console = console_on(sink, force_terminal=True, no_color=not color, highlight=False, markup=False)
    return LiveView(sink, console, level, title, ends=ends)


class LiveView:
    """An observer for a person at a terminal."""

    def __init__(
        self,
        sink: SafeStream,
        console: Console,
        level: int,
        title: str,
        *,
        ends: bool = False,
        clock: Callable[[], float] = time,
    ) -> None:
        self._sink = sink
        self._console = console
        self._level = level
        self._title = str(tidy(title))
        self._clock = clock
        self._ends = ends
        self._state = ""
        self._at_work = False
        self._started = self._drawn = clock()
        self._pace = Pace(self._started)
        self._plain = not has_unicode(console.encoding)
        self._reasons: OrderedDict[str, int] = OrderedDict()
        self._budget = LINES_PER_DRAWING
        self._skipped = 0
        # A syncer's prints may go to a file: only those to this terminal are moved above the view.
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            redirect_stdout=sys.stdout.isatty(),
        )
        # The cursor is hidden while the view is up, and must come back however the process ends.
        atexit.register(self._live.stop)

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        if name.endswith(".state_change"):
            self._state = str(tidy(facts.get("to", "")))
        elif name in AT_WORK:
            self._at_work = AT_WORK[name]
        if name == events.READY and not self._live.is_started:
            # Not earlier: until then a refusal may end the run with a single line.
            self._live.start()
        if events.is_for_people(name, level, self._level):
            tidied = tidy_facts(facts)
            self._print([self._line(level, str(tidy(text)) or name, tidied)])

    def settled(self, batch: Sequence[Settlement]) -> None:
        lines = []
        for settlement in batch:
            if events.is_plain_ack(settlement):
                continue
            name, level, facts = events.verdict_facts(settlement)
            text = verdict_text(name, facts)
            self._remember(text)
            if level < self._level:
                continue
            if self._budget > 0:
                self._budget -= 1
                lines.append(self._line(level, text, facts))
            else:
                self._skipped += 1
        self._print(lines)

    def tick(self, counters: Counters) -> None:
        now = self._clock()
        if now - self._drawn < EVERY:
            return
        self._drawn = now
        own_up(self, self._sink.take_untold())
        self._tell_skipped()
        self._budget = LINES_PER_DRAWING
        self._pace.sample(now, counters)
        if self._live.is_started and not self._sink.is_behind:
            self._live.update(self.drawing(counters, now), refresh=True)

    def close(self, counters: Counters) -> None:
        now = self._clock()
        self._live.stop()
        self._tell_skipped()
        own_up_at_the_end(self, self._sink, counters)
        self._print([*self._failures(), Text(summary(counters, now - self._started), end="")])
        self._sink.finish()

    def drawing(self, counters: Counters, now: float) -> Group:
        """The view as it is now."""
        uptime = max(now - self._started, 0.001)
        state = f"{self._state or 'starting'} · up {_clock_of(uptime)}"
        trouble = {
            "requeued": counters.requeued,
            "retried": counters.retried,
            "dead-lettered": counters.dead_lettered,
            "rejected": counters.rejected,
            "dropped": counters.dropped,
            "put aside": counters.put_aside,
            "late": counters.stale,
            "ack retries": counters.ack_retry,
            "reconnects": counters.reconnects,
        }
        told = "  ".join(f"{count:,} {name}" for name, count in trouble.items() if count)
        told = told or ("intake pauses" if counters.brake else "none")
        return Group(
            Rule(characters="-" if self._plain else "─", style="dim"),
            Text(self._title, style="bold", no_wrap=True, overflow="ellipsis"),
            Text(state, style="green" if self._at_work else "yellow", no_wrap=True),
            *self._numbers(counters, uptime),
            *([self._row("brake", counters.brake, style="yellow")] if counters.brake else []),
            Text(f"trouble  {told}", style="" if told == "none" else "yellow"),
            *([Text(sealed, style="yellow")] if (sealed := total(counters.sealed)) else []),
            *self._failures(),
        )

    def _numbers(self, counters: Counters, uptime: float) -> Iterator[Text]:
        """How fast it is, what is in work, what waits, and what is done."""
        history = sparkline(self._pace.history, plain=self._plain)
        average = f"{counters.handled / uptime:,.0f}/s on average"
        yield self._row("rate", f"{self._pace.rate:,.0f}/s now", average, history)
        oldest = f"the oldest for {roughly(counters.oldest)}" if counters.oldest else ""
        held = f"{counters.held:,} held" if counters.held else ""
        unsettled = f"{counters.unsettled:,} unsettled" if counters.unsettled else ""
        yield self._row("work", f"{counters.inflight:,} in flight", held, unsettled, oldest)
        if counters.depth is None:
            yield self._row("queue", f"{counters.queued:,} waiting at start")
        else:
            yield self._row("queue", f"{counters.depth:,} waiting now", f"{counters.queued:,} at start")
        yield self._row("done", f"{counters.ack:,} acked", f"{counters.received:,} received")
        if counters.depth or (counters.depth is not None and self._ends):
            yield self._bar(counters)

    def _bar(self, counters: Counters) -> Text:
        """How much of all that has come and waits is done, and how long the rest takes."""
        done = counters.handled - counters.requeued - counters.retried
        everything = done + counters.left
        share = done / everything if everything else 1.0
        words = f"{int(share * 100):>3} %"
        if counters.brake:  # nobody knows for how long
            words += "  paused"
        elif (left := self._pace.seconds_left) is not None:
            words += f"  about {roughly(max(1, round(left)))} left"
        elif self._pace.shrinking < 0:
            words += f"  growing by {-self._pace.shrinking:,.1f}/s"
        width = max(4, min(40, self._console.width - MARGIN - len(words) - GAP))
        return self._row("progress", bar(share, width, plain=self._plain), words)

    def _row(self, name: str, *parts: str, style: str = "") -> Text:
        """A row of facts, the last of them left out where the terminal is narrow."""
        row = f"{name:<{MARGIN}}{parts[0]}"
        for part in filter(None, parts[1:]):
            if len(row) + GAP + len(part) <= self._console.width:
                row += " " * GAP + part
        return Text(row, style=style, no_wrap=True, overflow="ellipsis")

    def _failures(self) -> list[Text]:
        """The latest reasons, newest last, each with its count."""
        latest = list(self._reasons.items())[-REASONS_SHOWN:]
        return [
            Text(f"{count:>6,} × {reason}", style="yellow", no_wrap=True, overflow="ellipsis")
            for reason, count in latest
        ]

    def _remember(self, reason: str) -> None:
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        self._reasons.move_to_end(reason)
        if len(self._reasons) > REASONS_KEPT:
            self._reasons.popitem(last=False)

    def _line(self, level: int, text: str, facts: Mapping[str, Any]) -> Text:
        style = next((style for least, style in _STYLES if level >= least), "dim")
        return Text(pretty(self._clock(), level, text, facts, color=False).rstrip("\n"), style=style)

    def _tell_skipped(self) -> None:
        if self._skipped:
            self._print([Text(f"… and {self._skipped} more of these", style="dim")])
            self._skipped = 0

    def _print(self, lines: Sequence[Text]) -> None:
        if self._sink.is_full:
            # Before rich sees them: what it believes is on the screen must really be there.
            self._sink.drop(len(lines))
        elif lines:
            self._console.print(Group(*lines))


def _clock_of(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
