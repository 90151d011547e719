"""Log lines: JSON for machines, short coloured lines for people.

Rule 1: what is below the level costs one check per verdict and no more.
Rule 2: one write per batch, through a sink that never raises.
Rule 3: every text is cleaned and stripped of secrets here, wherever it comes from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, Final

import orjson

from chronicle.core.settlement import Settlement
from chronicle.core.words import many
from chronicle.telemetry import events, left_sealed
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.redaction import cap, clean, one_line, redact
from chronicle.telemetry.safe_stream import SafeStream

_LONGEST_TEXT: Final = 2_000
_LONGEST_TRACE: Final = 10_000
_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS

# What people want to see after the text; the rest is for machines.
_KEY_FACTS: Final = (
    "action_id", "routing_key", "offset", "id", "file", "line", "attempts", "latency_ms", "notes", "error",
    "traceparent", "correlation_id",
    "syncer", "concurrency", "prefetch", "attempt", "running", "unsettled", "returned", "exit_code", "logger",
)  # fmt: skip
_COLOURS: Final = ((logging.ERROR, "\x1b[31m"), (logging.WARNING, "\x1b[33m"), (logging.INFO, "\x1b[32m"))
_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"


class JsonLog:
    """One JSON object per line; `always` is in every one (R-000-46)."""

    def __init__(
        self,
        sink: SafeStream,
        level: int,
        always: Mapping[str, str],
        *,
        clock: Callable[[], float] = time,
    ) -> None:
        self.sink = sink
        self._level = level
        self._always = {name: tidy(value) for name, value in always.items()}
        self._clock = clock

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        if not events.is_shown(name, level, self._level):
            return
        line = {"ts": stamp(self._clock()), "level": level_name(level), "event": name}
        line |= {"text": tidy(text), **self._always, **tidy_facts(facts)}
        self.sink.write(orjson.dumps(line, option=_OPTIONS))

    def settled(self, batch: Sequence[Settlement]) -> None:
        if self._level > logging.INFO:
            batch = [settlement for settlement in batch if not events.is_plain_ack(settlement)]
        lines = []
        ts = stamp(self._clock()) if batch else ""
        for settlement in batch:
            name, level, facts = events.verdict_facts(settlement)
            if level >= self._level:
                line = {"ts": ts, "level": level_name(level), "event": name, **self._always, **facts}
                lines.append(orjson.dumps(line, option=_OPTIONS))
        if lines:
            self.sink.write(b"".join(lines))

    def tick(self, counters: Counters) -> None:  # noqa: ARG002 - the counters are logged at the end
        own_up(self, self.sink.take_untold())

    def close(self, counters: Counters) -> None:
        own_up_at_the_end(self, self.sink, counters)


class PrettyLog:
    """Lines for people: the time, the level, what happened, the facts that matter."""

    def __init__(
        self,
        sink: SafeStream,
        level: int,
        *,
        color: bool,
        clock: Callable[[], float] = time,
    ) -> None:
        self.sink = sink
        self._level = level
        self._color = color
        self._clock = clock
        self._started = clock()

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        if events.is_for_people(name, level, self._level):
            line = pretty(
                self._clock(),
                level,
                tidy(text) or name,
                tidy_facts(facts),
                self._color,
            )
            self.sink.write(encode(line))

    def settled(self, batch: Sequence[Settlement]) -> None:
        if self._level > logging.INFO:
            batch = [settlement for settlement in batch if not events.is_plain_ack(settlement)]
        lines = []
        now = self._clock() if batch else 0.0
        for settlement in batch:
            name, level, facts = events.verdict_facts(settlement)
            if level >= self._level:
                lines.append(pretty(now, level, verdict_text(name, facts), facts, self._color))
        if lines:
            self.sink.write(encode("".join(lines)))

    def tick(self, counters: Counters) -> None:  # noqa: ARG002 - the counters are logged at the end
        own_up(self, self.sink.take_untold())

    def close(self, counters: Counters) -> None:
        own_up_at_the_end(self, self.sink, counters)
        self.sink.write(encode(summary(counters, self._clock() - self._started)))


def own_up(observer: events.Observer, lost: int, **facts: int) -> None:
    """Report that lines are missing, if any are."""
    if lost:
        text = f"{many(lost, 'log line')} could not be written"
        observer.event(events.LINES_DROPPED, logging.WARNING, text, lines=lost, **facts)


def own_up_at_the_end(observer: events.Observer, sink: SafeStream, counters: Counters) -> None:
    """Report how many lines are missing in all; the line with the final counters may be one of them."""
    sink.finish()
    own_up(observer, sink.dropped, **counters.facts())


def verdict_text(name: str, facts: Mapping[str, Any]) -> str:
    """A verdict in a few words: `dead-lettered: the syncer returned False`."""
    words = name.rpartition(".")[2].replace("dead_lettered", "dead-lettered").replace("_", " ")
    return f"{words}: {facts['reason']}" if "reason" in facts else words


def pretty(now: float, level: int, text: str, facts: Mapping[str, Any], color: bool) -> str:
    """One line with its newline; below it the traceback and the remedy, if there are any."""
    told = " ".join(f"{name}={_short(facts[name])}" for name in _KEY_FACTS if facts.get(name) is not None)
    clock = datetime.fromtimestamp(now).strftime("%H:%M:%S")
    paint = next((code for least, code in _COLOURS if level >= least), _DIM) if color else ""
    dim, reset = (_DIM, _RESET) if color else ("", "")
    line = f"{dim}{clock}{reset} {paint}{level_name(level):<8}{reset} {text}"
    if told:
        line += f"  {dim}{told}{reset}"
    for row in str(facts.get("trace") or "").splitlines():
        line += f"\n  {dim}│{reset} {row}"
    if facts.get("remedy"):
        line += f"\n  remedy: {facts['remedy']}"
    return line + "\n"


def _short(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def summary(counters: Counters, seconds: float) -> str:
    """The final table of a run (R-004-37): what is not zero, and the three numbers that always matter.

    What the transport noticed follows, by the names of the events, and how often sealed data was passed on.
    """
    facts = counters.facts()
    always = {"received", "ack", "nack"}
    rows = [(name.replace("_", "-"), f"{n:,}") for name, n in facts.items() if n or name in always]
    rows += [(name.replace(".", " ").replace("_", "-"), f"{n:,}") for name, n in counters.notices.items()]
    rate = counters.handled / seconds if seconds > 0 else 0.0
    rows.append(("per second", f"{rate:,.1f}"))
    rows.append(("time", f"{seconds:,.1f}s"))
    width = max(len(number) for _, number in rows)
    names = max(14, *(len(name) + 2 for name, _ in rows))
    table = "".join(f"  {name:<{names}}{number:>{width}}\n" for name, number in rows)
    sealed = left_sealed.total(counters.sealed)
    return f"{table}  {sealed}\n" if sealed else table


def tidy(value: Any) -> Any:
    """A fact as it may be written: short, on one line, without secrets."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return events.number(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list | tuple):
        return [tidy(item) for item in value[:50]]
    if isinstance(value, dict):
        return {tidy(str(name)): tidy(item) for name, item in list(value.items())[:50]}
    return one_line(str(value), _LONGEST_TEXT)


def tidy_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as they may be written; a traceback keeps its lines, an empty one is left out."""
    tidied = {name: tidy(value) for name, value in facts.items() if name != "trace"}
    if facts.get("trace"):
        rows = redact(str(facts["trace"]), _LONGEST_TRACE).split("\n")
        tidied["trace"] = cap("\n".join(map(clean, rows)), _LONGEST_TRACE)
    return tidied


def encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def stamp(now: float) -> str:
    """UTC with milliseconds."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(now * 1000) % 1000:03d}Z"


def level_name(level: int) -> str:
    return _LEVELS.get(level) or logging.getLevelName(level).lower()


_LEVELS: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}
