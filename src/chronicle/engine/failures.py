"""What ends a run before its time, in words and with its exit code (X4, X6, D-17). Only decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from chronicle.core.frozen import frozen
from chronicle.core.names import names_in
from chronicle.core.outcome import Fatal
from chronicle.core.settlement import Settlement
from chronicle.core.words import many
from chronicle.engine.breaker import SealBreaker
from chronicle.engine.job import Exit
from chronicle.engine.long_runs import Stuck
from chronicle.engine.reconnect import Patience
from chronicle.errors import ChronicleError, ClientFailed, SyncerError
from chronicle.telemetry import events
from chronicle.telemetry.redaction import name_of, trace_of
from chronicle.telemetry.trace_context import trace_facts
from chronicle.transports.seam import Transport
from chronicle.workers.handler import past

# A message that hangs its syncer comes back and hangs the next run, so both say how to get past it.
PAST_IT: Final = "to get past this message, let the syncer raise DeadLetter for it"
PLAIN: Final = f"give its client a timeout, or make it async: then it is cancelled and has failed; {PAST_IT}"
BLOCKING: Final = f"let it await instead of blocking, and not ignore the cancellation; {PAST_IT}"


@frozen
class Failure:
    """Why a run cannot continue."""

    code: Exit
    reason: str
    trace: str = ""
    event: str = events.FATAL
    facts: Mapping[str, Any] = field(default_factory=dict)  # which message it is about, if it is about one


WRONG_KEYS = Failure(Exit.OPERATOR, SealBreaker.problem, event=events.CIRCUIT_OPEN)


def of_syncer(settlement: Settlement) -> Failure | None:
    """The syncer broke its contract."""
    outcome = settlement.outcome
    if not isinstance(outcome, Fatal):
        return None
    facts = {"action_id": settlement.action_id, **trace_facts(settlement.delivery)}
    return Failure(Exit.FATAL, outcome.reason, outcome.trace, facts=facts)


def of_stuck(stuck: Stuck | None) -> Failure | None:
    """A syncer is past its time, and nothing but the end of the process ends it."""
    if stuck is None:
        return None
    is_plain = stuck.slot.interrupt is None
    why = "cannot be interrupted" if is_plain else "did not end when it was cancelled"
    facts = {"action_id": names_in(stuck.delivery.body)[0], **trace_facts(stuck.delivery)}
    facts["remedy"] = PLAIN if is_plain else BLOCKING
    return Failure(Exit.FATAL, f"{past(stuck.limit)}, and {why}", stuck.slot.stack(), facts=facts)


def of_thread(error: BaseException) -> Failure:
    """A thread or task of the syncer's own ended with an exception, or a worker's own task was ended."""
    known = isinstance(error, SyncerError)
    reason = str(error) if known else f"uncaught {name_of(type(error))} outside any message"
    return Failure(Exit.FATAL, reason, trace_of(error, None))


def of_client(error: ClientFailed) -> Failure:
    """The transport cannot go on."""
    facts = {"remedy": error.remedy} if error.remedy else {}
    return Failure(Exit(error.exit_code), str(error), event=events.FAILED, facts=facts)


def of_garbage(error: ChronicleError, patience: Patience) -> Failure | None:
    """The broker has sent what cannot be read once too often (RB13)."""
    if not patience.unreadable:
        return None
    return Failure(Exit.FATAL, f"{error}; the same again after every reconnect", event=events.UNREADABLE)


def given_up(error: ChronicleError, tries: int) -> str:
    """Why no further try is made to connect."""
    return f"{error}; given up after {many(tries, 'try', 'tries')}"


def of_absence(transport: Transport, limit: float) -> Failure | None:
    """A client that reconnects by itself has tried for longer than this; 0: it never gives up."""
    if not limit or transport.away <= limit:
        return None
    reason = f"{transport.place}: out of reach for {transport.away:.0f}s, given up"
    return Failure(Exit.UNREACHABLE, reason, event=events.FAILED)
