"""What is reported: the names of events, the facts of a verdict, and the observer that receives them.

Rule 1: one event per verdict, after settling, or when it begins to wait for its time; everything else is rare
        (style rule 8).
Rule 2 (D-21): ids, sizes and reasons. Of headers, properties and body only the action's id is reported, and
        the trace or conversation the message belongs to (trace_context.py).
Rule 3 (Z10): whatever a producer can choose is cleaned and capped.
Rule 4: a level says who has to do something. Error: a person; something is lost, or stays as it is until
        somebody looks. Warning: nobody yet; it went wrong, and chronicle or the broker sees to it. Info: it
        went as it should, or as somebody asked. Critical: the run ends because of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from chronicle.core.outcome import Action, Revoked, Synced, is_drop
from chronicle.core.settlement import Fate, Settlement
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.redaction import mask, one_line
from chronicle.telemetry.trace_context import trace_facts

STARTING: Final = "consumer.starting"
READY: Final = "consumer.ready"
STOPPING: Final = "consumer.stopping"
STOPPED: Final = "consumer.stopped"
LOST: Final = "connection.lost"
RETRY: Final = "connection.retry"
ACKED: Final = "message.acked"
REQUEUED: Final = "message.requeued"
RETRIED: Final = "message.retried"
DEAD_LETTERED: Final = "message.dead_lettered"
REJECTED: Final = "message.rejected"
DROPPED: Final = "message.dropped"
LEFT: Final = "message.left"
PUT_ASIDE: Final = "message.put_aside"
STALE: Final = "message.stale"
SETTLE_FAILED: Final = "message.settle_failed"
FATAL: Final = "syncer.fatal"
SLOW: Final = "syncer.slow"
BRAKED: Final = "intake.braked"
PROBE_FAILED: Final = "intake.probe_failed"
RESUMED: Final = "intake.resumed"
CAPTURE_FAILED: Final = "capture.failed"
CIRCUIT_OPEN: Final = "keys.circuit_open"
UNREADABLE: Final = "connection.unreadable"
FAILED: Final = "connection.failed"
CRASHED: Final = "process.crashed"
PROGRESS: Final = "consumer.progress"
COMMAND_FAILED: Final = "command.failed"
COMMAND_WARNING: Final = "command.warning"
COMMAND_NOTE: Final = "command.note"
LOG: Final = "log"
LINES_DROPPED: Final = "log.lines_dropped"

_NAMES: Final = {
    Action.ACK: (ACKED, logging.INFO),
    Action.REQUEUE: (REQUEUED, logging.WARNING),
    Action.RETRY: (RETRIED, logging.WARNING),
    Action.DEAD_LETTER: (DEAD_LETTERED, logging.ERROR),
    Action.DROP: (DROPPED, logging.ERROR),
    Action.LEAVE: (LEFT, logging.WARNING),
}
# Where a delivery is at its broker. A Kafka key is not among them: it is often an e-mail address.
_PLACES: Final = ("delivery_tag", "exchange", "routing_key", "topic", "partition", "offset", "stream", "id",
                  "channel", "file", "line")  # fmt: skip
_ADDRESSES: Final = ("routing_key", "channel")  # which a producer words, and may make of anything
_LONGEST_LABEL: Final = 200


class Observer(Protocol):
    """Receives what happens in a run. Never raises, never waits long."""

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        """Something rare happened."""

    def settled(self, batch: Sequence[Settlement]) -> None:
        """These deliveries have their fate: after settling, once per turn."""

    def tick(self, counters: Counters) -> None:
        """A few times a second, from the pump."""

    def close(self, counters: Counters) -> None:
        """The run is over."""


class Silent:
    """An observer that reports nothing."""

    def event(self, name: str, level: int, text: str, **facts: Any) -> None: ...

    def settled(self, batch: Sequence[Settlement]) -> None: ...

    def tick(self, counters: Counters) -> None: ...

    def close(self, counters: Counters) -> None: ...


def state_change(transport: str) -> str:
    """The name of a transition's event (R-000-43): `rabbitmq_trigger.state_change`."""
    return f"{transport}_trigger.state_change"


def inflight(transport: str) -> str:
    """The name of what is in flight at a transition and at the end (R-001-31): `redis_trigger_inflight`."""
    return f"{transport}_trigger_inflight"


def is_shown(name: str, level: int, least: int) -> bool:
    """Whether an event is logged at this level; which lines of others are, the bridge has decided."""
    return level >= least or name == LOG


def is_for_people(name: str, level: int, least: int) -> bool:
    """Whether it is shown at a terminal: state changes are for the log, not for people."""
    return is_shown(name, logging.DEBUG if name.endswith(".state_change") else level, least)


def label(text: str) -> str:
    """An external name made fit for a log: there are few and they repeat, so each is cleaned once."""
    return _label(_capped(text))


@lru_cache(maxsize=2048)
def _label(text: str) -> str:
    return one_line(text, _LONGEST_LABEL)


def address(text: str) -> str:
    """How a producer addressed a message, without what looks like a person's e-mail address or number."""
    return _address(_capped(text))


@lru_cache(maxsize=2048)
def _address(text: str) -> str:
    return mask(text, None, _LONGEST_LABEL)


def _capped(text: str) -> str:
    """Only so much of it is kept: it is as long as a producer likes."""
    return text[: 4 * _LONGEST_LABEL + 1]


def number(value: int) -> int | str:
    """A whole number every JSON reader can handle; a body may contain one of five thousand digits."""
    return value if -(2**63) <= value < 2**63 else f"a number of {value.bit_length()} bits"


def is_plain_ack(settlement: Settlement) -> bool:
    """All went well: the syncer returned True, and the broker accepted the ack."""
    return (
        settlement.fate is Fate.DONE
        and settlement.verdict.action is Action.ACK
        and type(settlement.outcome) is Synced
    )


def verdict_facts(settlement: Settlement) -> tuple[str, int, dict[str, Any]]:
    """The event of one verdict: its name, its level, and the delivery's facts (R-000-44)."""
    delivery, verdict = settlement.delivery, settlement.verdict
    plain = is_plain_ack(settlement)
    facts: dict[str, Any] = {"queue": label(delivery.queue)}
    origin = delivery.origin
    for place in _PLACES:
        if place in origin:
            value = origin[place]
            words = address if place in _ADDRESSES else label
            facts[place] = number(value) if type(value) is int else words(str(value))
    facts |= trace_facts(delivery)
    facts["action_id"] = None if settlement.action_id is None else number(settlement.action_id)
    facts["size"] = len(delivery.body)
    facts["redelivered"] = delivery.redelivered
    # The attempts may be in headers that are not decoded yet; an ack is not worth decoding them.
    if not plain or delivery.redelivered or delivery.counted:
        facts["attempts"] = number(delivery.attempts)
    facts["acked"] = verdict.action is Action.ACK and settlement.fate is Fate.DONE
    facts["latency_ms"] = round(settlement.seconds * 1000, 3)
    if settlement.notes:
        facts["notes"] = [one_line(note, 200) for note in settlement.notes]
    if plain:
        return ACKED, logging.INFO, facts
    facts["reason"] = one_line(verdict.reason, 500)
    if verdict.delay:
        facts["delay_ms"] = round(verdict.delay * 1000)
    if settlement.error:
        facts["error"] = one_line(settlement.error, 500)
    return (*_name(settlement), facts)


def _name(settlement: Settlement) -> tuple[str, int]:
    action = settlement.verdict.action
    if isinstance(settlement.outcome, Revoked):
        return LEFT, logging.INFO
    if settlement.fate is Fate.STALE and action is not Action.LEAVE:
        return STALE, logging.WARNING
    if settlement.fate is Fate.FAILED:
        return SETTLE_FAILED, logging.WARNING
    if settlement.fate is Fate.ASIDE:
        return PUT_ASIDE, logging.ERROR
    if settlement.fate is Fate.REJECTED:
        return REJECTED, logging.WARNING
    name, level = _NAMES[action]
    if action is Action.DROP and is_drop(settlement.outcome):
        return name, logging.INFO
    # An ack of a message that failed (`--on-failure ack`) deserves a look.
    return name, max(level, logging.WARNING)
