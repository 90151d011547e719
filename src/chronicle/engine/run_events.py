"""What the pump reports to the observer: every event of a run, its level and its facts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from chronicle.core.names import names_in
from chronicle.core.words import many
from chronicle.engine.failures import Failure
from chronicle.engine.job import Ending, Exit, Job
from chronicle.engine.long_runs import Run
from chronicle.engine.progress import Progress
from chronicle.errors import BrokerRefused, ChronicleError, ConnectionLost
from chronicle.telemetry import events, left_sealed
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Observer
from chronicle.telemetry.redaction import one_line, trace_of
from chronicle.telemetry.trace_context import trace_facts
from chronicle.transports.seam import Transport
from chronicle.workers.loader import Syncer

# What went back comes again by itself; every other end but a good one is for a person.
ENDINGS: Final = {Exit.DONE: logging.INFO, Exit.RETURNED: logging.WARNING}


class RunEvents:
    """Puts the events of a run into words, in one place."""

    def __init__(
        self, observer: Observer, transport: Transport, counters: Counters, progress: float, now: float
    ) -> None:
        self._say = observer.event
        self._observer = observer
        self._progress = Progress(progress, transport, counters, observer, now)
        self._counters = counters
        self._transport = transport
        self._state_change = events.state_change(transport.promises.transport)
        self._inflight = events.inflight(transport.promises.transport)

    def starting(self, syncer: Syncer) -> None:
        """With the file, so that a module of the same name from elsewhere is noticed (Z1)."""
        self._say(events.STARTING, logging.INFO, "starting", syncer=syncer.name, file=syncer.file or None)

    def ready(self, job: Job, queued: int | None, attempts: int, away: float) -> None:
        self.notices()  # what was found out while opening comes first
        self._say(
            events.READY,
            logging.INFO,
            "consuming" if queued is None else f"consuming, {queued} waiting",
            queued=queued,
            connect_attempts=attempts,
            away_ms=round(away * 1000),
            concurrency=job.concurrency,
            prefetch=job.prefetch,
        )

    def retry(self, error: ChronicleError, attempt: int, delay: float) -> None:
        """A refusal needs attention, an outage passes by itself: the levels differ."""
        self._say(
            events.RETRY,
            logging.ERROR if isinstance(error, BrokerRefused) else logging.WARNING,
            f"{error}; trying again in {delay:.1f}s",
            attempt=attempt,
            delay_ms=round(delay * 1000),
        )

    def lost(self, error: ConnectionLost, running: int) -> None:
        self._say(events.LOST, logging.WARNING, str(error), running=running)

    def tick(self, now: float) -> None:
        """A few times a second."""
        self._progress.tick(now)
        self._observer.tick(self._counters)

    def stopping(self, reason: str, unsettled: int) -> None:
        finishing = f"; finishing {many(unsettled, 'message')}, a second signal stops immediately"
        left = finishing if unsettled else ""
        self._say(events.STOPPING, logging.INFO, f"stopping: {reason}{left}", unsettled=unsettled)

    def failed(self, failure: Failure) -> None:
        """The run cannot continue."""
        self._say(failure.event, logging.CRITICAL, failure.reason, trace=failure.trace, **failure.facts)

    def slow(self, run: Run) -> None:
        """A syncer that takes long, by the message's id and where it is; nothing of the message itself."""
        action_id, _ = names_in(run.delivery.body)
        self._say(
            events.SLOW,
            logging.WARNING,
            f"a syncer has been running for {run.age:.0f}s",
            action_id=None if action_id is None else events.number(action_id),
            age_ms=round(run.age * 1000),
            trace=run.slot.stack(),
            **trace_facts(run.delivery),
        )

    def braked(self, why: str, row: int, reason: str) -> None:
        text = f"{why}; intake pauses, and one message is tried now and then until one succeeds"
        self._say(events.BRAKED, logging.WARNING, text, row=row, reason=one_line(reason, 500))

    def probe_failed(self, reason: str, pause: float) -> None:
        text = f"still failing: {one_line(reason, 500)}; the next try is in {pause:g}s"
        self._say(events.PROBE_FAILED, logging.INFO, text, delay_ms=round(pause * 1000))

    def resumed(self, after: float, probes: int) -> None:
        text = f"a message succeeded: intake resumes after {after:.0f}s"
        self._say(events.RESUMED, logging.INFO, text, paused_ms=round(after * 1000), failed_tries=probes)

    def did_not_close(self, error: BaseException) -> None:
        self._say(
            events.FATAL, logging.ERROR, "the syncer failed to close", trace=trace_of(error, message=None)
        )

    def stopped(self, ending: Ending, unfinished: int) -> None:
        """The last line of a run, with its final counters (R-004-37), after what was noticed at the end."""
        self.notices()
        counters = ending.counters
        self._say(
            events.STOPPED,
            ENDINGS.get(ending.code, logging.ERROR),
            "; ".join((f"stopped: {ending.reason}", *_concerns(counters))),
            exit_code=int(ending.code),
            **({"remedy": ending.remedy} if ending.remedy else {}),
            unfinished=unfinished,
            **counters.facts(),
            **{self._inflight: counters.inflight},
            states=dict(counters.states),
            notices=dict(counters.notices),
        )

    def notices(self) -> None:
        """What the transport reported; each notice is logged once, and counted."""
        seen = self._transport.notices
        while seen:
            notice = seen.popleft()
            if notice.counted:
                self._counters.noticed(notice)
            trace = trace_facts(notice.about) if notice.about is not None else {}
            self._say(notice.event, notice.level, notice.text, **notice.facts, **trace)

    def state_changed(self, before: str, after: str, event: str) -> None:
        self._counters.entered(after)
        facts = {"from": before, "to": after, "on": event, self._inflight: self._counters.inflight}
        level = logging.DEBUG if event in self._transport.machine.everyday else logging.INFO
        self._say(self._state_change, level, f"{before} → {after}", **facts)


def _concerns(counters: Counters) -> Iterator[str]:
    """What an operator should know of a run that ended well."""
    if sealed := left_sealed.total(counters.sealed):
        yield sealed
    if counters.rejected:
        yield f"{counters.rejected:,} rejected, which the broker may have deleted"
