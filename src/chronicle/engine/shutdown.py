"""Whether a run is ending, why, and until when: decides, reads no clock. And how its syncer is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chronicle.core.words import many
from chronicle.engine.job import Ending, Exit, Objection, no_objection
from chronicle.engine.run_events import RunEvents
from chronicle.telemetry.counters import Counters
from chronicle.transports.seam import Closing
from chronicle.workers.base import Workers

LEAVING = 1.0  # how long a syncer's context may take to close when work is stuck


class Shutdown:
    """The end of one run, from the first request to the last turn."""

    def __init__(
        self, counters: Counters, objection: Callable[[Ending], Objection | None] = no_objection
    ) -> None:
        self._counters = counters
        self._objection = objection
        self.asked: str | None = None  # why it was asked to stop, if it was
        self.ending: Ending | None = None  # decided, perhaps still draining
        self.deadline: float | None = None  # of the drain
        self.closing = Closing.SETTLED
        self.over = False

    def ask(self, reason: str) -> None:
        """Ask the run to end; the first reason stands."""
        if self.asked is None:
            self.asked = reason

    @property
    def begun(self) -> bool:
        return self.asked is not None or self.ending is not None

    @property
    def failing(self) -> bool:
        """The run cannot continue: nothing new is taken in, and no wait is longer than a moment."""
        return self.ending is not None and self.ending.code is not Exit.DONE

    def decide(self, code: Exit, reason: str, trace: str = "", remedy: str = "") -> None:
        self.ending = Ending(code, reason, self._counters, trace=trace, remedy=remedy)

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline

    def finish(self, why: Closing) -> None:
        self.closing = why
        self.over = True

    def concluded(
        self, unfinished: int, unconfirmed: int, *, stuck: bool, broken: BaseException | None
    ) -> Ending:
        """How it ended: messages that may come again, or a syncer that did not close, are not a success."""
        assert self.ending is not None
        code, reason = self.ending.code, self.ending.reason
        if broken is not None:
            code, reason = (code or Exit.FATAL), f"{reason}; the syncer failed to close"
        if code is Exit.DONE and (unfinished or unconfirmed or stuck):
            code = Exit.RETURNED
            reason += "; a syncer is still running" if stuck else ""
            reason += f"; {many(unfinished, 'unfinished message')} went back" if unfinished else ""
            reason += f"; {many(unconfirmed, 'finished message')} may come again" if unconfirmed else ""
        if code is Exit.DONE and (objection := self._objection(self.ending)):
            code, reason = objection.code, f"{reason}; {objection.reason}"
        return replace(self.ending, code=code, reason=reason, stuck=stuck, unclosed=broken)


def leave_syncer(workers: Workers, patience: float, tell: RunEvents) -> tuple[bool, BaseException | None]:
    """Leave the syncer's context: whether a syncer is still running, and what leaving raised."""
    try:
        return not workers.stop(max(LEAVING, patience)), None
    except BaseException as error:
        tell.did_not_close(error)
        return False, error
