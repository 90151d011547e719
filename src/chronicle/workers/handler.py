"""One delivery on its way through guard, pipeline, syncer and policy.

Rule 1: whatever happens in here ends in exactly one settlement. Only an error that cannot even be put into
        words escapes into the worker, which ends the run.
Rule 2: only True and False count, by identity; 1, None and numpy's booleans are fatal (X3).
Rule 3: what a syncer says about a message (an exception's text, a reason) is masked before it is passed on.
Rule 4: a process that the syncer has forked never comes back from the call: it would settle the message, on
        the connection it shares with this process, which is still working on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

from chronicle.core.deadletters.death import undead
from chronicle.core.delivery import Delivery
from chronicle.core.in_work import begin, end
from chronicle.core.names import names_in
from chronicle.core.outcome import Asked, Failed, Fatal, Invalid, Outcome, Revoked, Synced
from chronicle.core.pipeline import Pipeline, Prepared, Schema
from chronicle.core.policy import OnException, Policy, decide
from chronicle.core.settlement import Settlement
from chronicle.core.units import format_duration
from chronicle.errors import Ask, CannotDecrypt, MessageError, UnknownSigner
from chronicle.telemetry.redaction import BUDGET, name_of, reason_of, trace_of, words_of

SYNCED = Synced()
FAILED = Failed()
REVOKED = Revoked()
MOST_SEARCHED = 8 * BUDGET  # bytes: a larger body is not decoded again only to find that it is too large


class Handler:
    """Runs one syncer over one delivery at a time, in whichever worker calls it."""

    def __init__(
        self,
        pipeline: Pipeline,
        policy: Policy,
        call: Callable[..., Any],
        *,
        takes_delivery: bool,
        time_limit: float = 0.0,
    ) -> None:
        self._time_limit = time_limit
        self._pipeline = pipeline
        self._policy = policy
        self._call = call
        self._takes_delivery = takes_delivery
        self._process = os.getpid()

    def run(self, delivery: Delivery) -> Settlement:
        """Handle a delivery with a syncer that is a plain function."""
        started = perf_counter()
        prepared = self.prepare(delivery)
        if not isinstance(prepared, Prepared):
            return self.settlement(delivery, prepared, started)
        ticket = begin(delivery, prepared.action_id)
        try:
            if self._takes_delivery:
                outcome = judge(self._call(prepared.message, delivery))
            else:
                outcome = judge(self._call(prepared.message))
        except BaseException as error:
            self._end_fork(error)
            outcome = self.raised(error, prepared.message, delivery)
        self._end_fork()
        end(ticket)
        return self.settlement(delivery, outcome, started, prepared)

    async def run_async(self, delivery: Delivery) -> Settlement:
        """Handle a delivery with a syncer that is a coroutine function."""
        started = perf_counter()
        prepared = self.prepare(delivery)
        if not isinstance(prepared, Prepared):
            return self.settlement(delivery, prepared, started)
        ticket = begin(delivery, prepared.action_id)
        try:
            if self._takes_delivery:
                outcome = judge(await self._call(prepared.message, delivery))
            else:
                outcome = judge(await self._call(prepared.message))
        except BaseException as error:
            self._end_fork(error)
            outcome = self.raised(error, prepared.message, delivery)
        self._end_fork()
        end(ticket)
        return self.settlement(delivery, outcome, started, prepared)

    def _end_fork(self, error: BaseException | None = None) -> None:
        """End this process if it is one that the syncer has forked: with its code, if it asks for one."""
        if os.getpid() != self._process:
            code = (error.code or 0) if isinstance(error, SystemExit) else 1
            os._exit(code & 0xFF if isinstance(code, int) else 1)

    def prepare(self, delivery: Delivery) -> Prepared | Outcome:
        """The message for the syncer, or why there is none."""
        if delivery.lease is not None and not delivery.lease.begin():
            return REVOKED
        try:
            return self._pipeline.exhausted(delivery) or self._pipeline.prepare(delivery)
        except CannotDecrypt as error:
            return Invalid(str(error), sealed=True, stranger=isinstance(error, UnknownSigner))
        except MessageError as error:
            return Invalid(str(error))
        except Exception as error:  # a bug of ours must not pass for a bad message
            return Fatal(
                f"chronicle failed on this message: {name_of(type(error))}", trace_of(error, delivery.body)
            )

    def raised(self, error: BaseException, message: Any, delivery: Delivery) -> Outcome:
        """What an exception about a message means."""
        known = self._known(message, delivery)
        if isinstance(error, Ask):
            return Asked(error, words_of(error, known))
        reason = f"the syncer raised {reason_of(error, known)}"
        if isinstance(error, Exception) and self._policy.on_exception is OnException.FAIL:
            return Failed(reason)
        return Fatal(reason, trace_of(error, known))

    def too_late(self, settlement: Settlement) -> None:
        """The syncer was cancelled because it was past its time: this message has failed, whatever became of
        the cancellation, unless the syncer says that it was done."""
        if not isinstance(settlement.outcome, Synced):
            settlement.outcome = Failed(past(self._time_limit))
            settlement.verdict = decide(settlement.outcome, settlement.delivery, self._policy)

    def _known(self, message: Any, delivery: Delivery) -> Any:
        """What a text about this message must not reveal.

        That is the message as it came, because a syncer may have taken things out of it; as it is now,
        because it may have put some in; and what is written on the delivery.
        """
        if len(delivery.body) > MOST_SEARCHED:
            return delivery.body
        try:
            before = self._pipeline.prepare(delivery).message
        except MessageError:
            before = message
        except Exception:  # such as no memory, which may be what the syncer raised
            return delivery.body
        if not isinstance(before, dict):
            return before
        now = [message] if _differ(message, before) else []
        # A lone surrogate is a key that no JSON text can have, so it cannot shadow one of the message's. What
        # chronicle itself wrote about an earlier try is no secret: the same reason again must be readable.
        return {**before, "\udc00": [undead(delivery.headers), delivery.properties, *now]}

    def settlement(
        self, delivery: Delivery, outcome: Outcome, started: float, prepared: Prepared | None = None
    ) -> Settlement:
        """What becomes of a delivery with this outcome."""
        settlement = Settlement(delivery, outcome, decide(outcome, delivery, self._policy))
        settlement.seconds = perf_counter() - started
        if prepared is not None:
            settlement.action_id = prepared.action_id
            settlement.notes = prepared.notes
            settlement.opened = prepared.opened
        else:
            settlement.action_id = self._id_in(delivery)
        return settlement

    def _id_in(self, delivery: Delivery) -> int | None:
        """The action's id in a message that was never prepared, so that the log can name it (D-3, Z16)."""
        too_large = len(delivery.body) > self._pipeline.max_body
        return None if too_large or self._pipeline.schema is Schema.RAW else names_in(delivery.body)[0]


def past(limit: float) -> str:
    """That a syncer took longer than it may."""
    return f"the syncer did not finish within {format_duration(limit)}"


def _differ(one: Any, other: Any) -> bool:
    try:
        return bool(one != other)
    except Exception:  # a message that holds itself, or something that cannot be compared
        return True


def judge(answer: object) -> Outcome:
    """What a syncer's answer means."""
    if answer is True:
        return SYNCED
    if answer is False:
        return FAILED
    if answer is None:
        return Fatal("the syncer returned None, not True or False: is a `return True` missing?")
    hint = ": write `async def`, or return its result" if hasattr(answer, "__await__") else ""
    return Fatal(f"the syncer returned {name_of(type(answer))}, not True or False{hint}")
