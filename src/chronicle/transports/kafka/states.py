"""The states of a Kafka consumer (R-002-4), as a table.

Rule 1: many records are in work at once, so the state is that of the last thing that happened. What happens
        with every record is for the log at debug level.
Rule 2: the client reconnects by itself: Reconnecting ends with `recovered`, and the assignment may have
        outlived the outage. Only a try to start leads through Initializing again.
Rule 3 (R-002-14, R-002-34): a commit that failed is Error until the next one; nothing stops for it.
Rule 4 (D-10, D-11): two states are ours, because a stop drains: Draining and Closed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.core.machine import Machine, Table
from chronicle.transports.course import Course
from chronicle.transports.seam import Closing


class Kafka(StrEnum):
    """States of a consumer of a topic."""

    INITIALIZING = "Initializing"
    SUBSCRIBING = "Subscribing"
    POLLING = "Polling"
    EXECUTING = "Executing"
    COMMITTING = "Committing"
    BUILD_FAILED = "BuildFailed"
    RECONNECTING = "Reconnecting"
    BACKOFF = "Backoff"
    ERROR = "Error"
    DRAINING = "Draining"
    CLOSED = "Closed"


class KafkaEvent(StrEnum):
    """What can happen to it."""

    INITIALIZE = "initialize"
    BUILD_OK = "build_ok"
    BUILD_ERR = "build_err"
    SUB_OK = "sub_ok"
    SUB_ERR = "sub_err"
    RECORD = "record"
    EXEC_OK = "exec_ok"
    COMMIT_OK = "commit_ok"
    COMMIT_ERR = "commit_err"
    POLL_ERR = "poll_err"
    RECOVERED = "recovered"
    EMPTY = "empty"
    POLL = "poll"
    WAIT = "wait"
    RETRY = "retry"
    STOP = "stop"
    SETTLED = "settled"
    DEADLINE = "deadline"


EVERYDAY: Final = frozenset(
    (KafkaEvent.RECORD, KafkaEvent.EXEC_OK, KafkaEvent.COMMIT_OK, KafkaEvent.EMPTY, KafkaEvent.POLL)
)
_WORKING: Final = (Kafka.POLLING, Kafka.EXECUTING, Kafka.COMMITTING, Kafka.ERROR)
_AWAY: Final = (
    Kafka.INITIALIZING, Kafka.SUBSCRIBING, Kafka.BUILD_FAILED, Kafka.RECONNECTING, Kafka.BACKOFF,
)  # fmt: skip

KAFKA: Final[Table] = {
    (Kafka.CLOSED, KafkaEvent.INITIALIZE): Kafka.INITIALIZING,
    (Kafka.INITIALIZING, KafkaEvent.BUILD_OK): Kafka.SUBSCRIBING,
    (Kafka.INITIALIZING, KafkaEvent.BUILD_ERR): Kafka.BUILD_FAILED,
    (Kafka.BUILD_FAILED, KafkaEvent.POLL_ERR): Kafka.RECONNECTING,
    (Kafka.INITIALIZING, KafkaEvent.POLL_ERR): Kafka.RECONNECTING,
    (Kafka.SUBSCRIBING, KafkaEvent.SUB_OK): Kafka.POLLING,
    (Kafka.SUBSCRIBING, KafkaEvent.SUB_ERR): Kafka.RECONNECTING,
    (Kafka.SUBSCRIBING, KafkaEvent.POLL_ERR): Kafka.RECONNECTING,
    **{(state, KafkaEvent.RECORD): Kafka.EXECUTING for state in (*_WORKING, Kafka.BACKOFF)},
    **{(state, KafkaEvent.EXEC_OK): Kafka.COMMITTING for state in (*_WORKING, Kafka.BACKOFF)},
    **{(state, KafkaEvent.COMMIT_OK): Kafka.POLLING for state in (Kafka.COMMITTING, Kafka.ERROR)},
    **{(state, KafkaEvent.COMMIT_ERR): Kafka.ERROR for state in (*_WORKING, Kafka.BACKOFF)},
    (Kafka.POLLING, KafkaEvent.EMPTY): Kafka.BACKOFF,
    (Kafka.BACKOFF, KafkaEvent.POLL): Kafka.POLLING,
    **{(state, KafkaEvent.POLL_ERR): Kafka.RECONNECTING for state in (*_WORKING, Kafka.BACKOFF)},
    (Kafka.RECONNECTING, KafkaEvent.POLL_ERR): Kafka.RECONNECTING,
    (Kafka.RECONNECTING, KafkaEvent.RECOVERED): Kafka.POLLING,
    (Kafka.RECONNECTING, KafkaEvent.WAIT): Kafka.BACKOFF,
    (Kafka.BACKOFF, KafkaEvent.RETRY): Kafka.RECONNECTING,
    (Kafka.RECONNECTING, KafkaEvent.INITIALIZE): Kafka.INITIALIZING,
    **{(state, KafkaEvent.STOP): Kafka.DRAINING for state in (*_WORKING, *_AWAY)},
    (Kafka.DRAINING, KafkaEvent.STOP): Kafka.DRAINING,
    (Kafka.DRAINING, KafkaEvent.POLL_ERR): Kafka.CLOSED,
    (Kafka.DRAINING, KafkaEvent.SETTLED): Kafka.CLOSED,
    (Kafka.DRAINING, KafkaEvent.DEADLINE): Kafka.CLOSED,
    (Kafka.CLOSED, KafkaEvent.STOP): Kafka.CLOSED,
    (Kafka.CLOSED, KafkaEvent.POLL_ERR): Kafka.CLOSED,
    (Kafka.CLOSED, KafkaEvent.SETTLED): Kafka.CLOSED,
    (Kafka.CLOSED, KafkaEvent.DEADLINE): Kafka.CLOSED,
}

_COURSE: Final = Course(
    again=KafkaEvent.RETRY,
    begin=KafkaEvent.INITIALIZE,
    refused=(KafkaEvent.BUILD_ERR, KafkaEvent.SUB_ERR),
    done=KafkaEvent.SUB_OK,
    stop=KafkaEvent.STOP,
    endings={
        Closing.LOST: KafkaEvent.POLL_ERR,
        Closing.SETTLED: KafkaEvent.SETTLED,
        Closing.DEADLINE: KafkaEvent.DEADLINE,
    },
    wait=KafkaEvent.WAIT,
)
opened, end = _COURSE.opened, _COURSE.end


def looking(machine: Machine) -> None:
    """The next look at what was polled (R-002-15)."""
    if machine.state == Kafka.BACKOFF:
        machine.fire(KafkaEvent.POLL)


def nothing_came(machine: Machine) -> None:
    """A look found nothing: idle until the next (R-002-15)."""
    if machine.state == Kafka.POLLING:
        machine.fire(KafkaEvent.EMPTY)


def received(machine: Machine) -> None:
    """Records are handed out."""
    if machine.state != Kafka.EXECUTING and machine.can(KafkaEvent.RECORD):
        machine.fire(KafkaEvent.RECORD)


def settled(machine: Machine) -> None:
    """Verdicts have come: their offsets wait for the next commit."""
    if machine.state == Kafka.EXECUTING:
        machine.fire(KafkaEvent.EXEC_OK)


def happened(machine: Machine, event: KafkaEvent) -> None:
    """What the client's thread has seen, as far as it means anything in this state."""
    if machine.state != Kafka.DRAINING and machine.can(event):
        machine.fire(event)
