"""How far a run is: what waits now, and a line about it every so often. Reads no clock, and never sleeps."""

from __future__ import annotations

import logging
from typing import Any

from chronicle.core.units import roughly
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer
from chronicle.transports.seam import Transport


class Progress:
    """The gauges of a run, read from its transport, and the line about them."""

    def __init__(
        self, every: float, transport: Transport, counters: Counters, observer: Observer, now: float
    ) -> None:
        """`every` is in seconds. 0: nobody wants to know; infinite: somebody looks at the counters alone."""
        self._every = every
        self._transport = transport
        self._counters = counters
        self._observer = observer
        self._started = self._told = now
        self._handled = 0

    def tick(self, now: float) -> None:
        """A few times a second: look what waits, and tell if it is time."""
        if not self._every:
            return
        self._counters.depth = self._transport.depth
        since = now - self._told
        if since < self._every:
            return
        handled = self._counters.handled
        rate, overall = (handled - self._handled) / since, handled / (now - self._started)
        self._told, self._handled = now, handled
        self._tell(round(rate, 1), round(overall, 1))

    def _tell(self, rate: float, overall: float) -> None:
        counters = self._counters
        words = [f"{counters.handled:,} handled", f"{rate:,}/s", f"{overall:,}/s overall"]
        words += [f"{counters.depth:,} waiting"] if counters.depth is not None else []
        words.append(f"{counters.inflight:,} in flight")
        if counters.held:
            words.append(f"{counters.held:,} held")
        if counters.unsettled:
            words.append(f"{counters.unsettled:,} unsettled")
        if counters.oldest:
            words.append(f"the oldest for {roughly(counters.oldest)}")
        if counters.brake:
            words.append(f"braking: {counters.brake}")
        facts: dict[str, Any] = {"rate": rate, "rate_overall": overall, "depth": counters.depth}
        facts["held"] = counters.held
        facts["unsettled"] = counters.unsettled
        facts["oldest_ms"] = round(counters.oldest * 1000)
        if counters.brake:
            facts["brake"] = counters.brake
        self._observer.event(events.PROGRESS, logging.INFO, ", ".join(words), **facts, **counters.facts())
