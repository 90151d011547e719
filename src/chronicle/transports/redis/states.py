"""The states of a Redis consumer (R-001-4), as a table.

Rule 1: many entries are in work at once, so the state is that of the last thing that happened. What happens
        with every message is for the log at debug level: Receiving, Executing, Completed and Idle follow one
        another all the time.
Rule 2 (D-13): a syncer that fails never causes a reconnect: its entry is settled in another way, and that is
        Completed as well. Only the driver's own errors lead to Reconnecting.
Rule 3 (D-10, D-11): two states are ours, because a stop drains: Draining and Closed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.core.machine import Machine, Table
from chronicle.transports.course import Course
from chronicle.transports.seam import Closing


class Redis(StrEnum):
    """States of a consumer of a stream or of channels."""

    INITIALIZING = "Initializing"
    RECEIVING = "Receiving"
    EXECUTING = "Executing"
    COMPLETED = "Completed"
    IDLE = "Idle"
    BUILD_FAILED = "BuildFailed"
    RECONNECTING = "Reconnecting"
    BACKOFF = "Backoff"
    DRAINING = "Draining"
    CLOSED = "Closed"


class RedisEvent(StrEnum):
    """What can happen to it."""

    INITIALIZE = "initialize"
    DRIVER_OK = "driver_ok"
    BUILD_ERR = "build_err"
    DELIVERY = "delivery"
    EXEC_OK = "exec_ok"
    ACK_OK = "ack_ok"
    IDLE_TICK = "idle_tick"
    RECV_ERR = "recv_err"
    WAIT = "wait"
    BACKOFF = "backoff"
    STOP = "stop"
    SETTLED = "settled"
    DEADLINE = "deadline"


EVERYDAY: Final = frozenset(
    (RedisEvent.DELIVERY, RedisEvent.EXEC_OK, RedisEvent.ACK_OK, RedisEvent.IDLE_TICK)
)
_WORKING: Final = (Redis.RECEIVING, Redis.EXECUTING, Redis.COMPLETED, Redis.IDLE)
_AWAY: Final = (Redis.INITIALIZING, Redis.BUILD_FAILED, Redis.RECONNECTING, Redis.BACKOFF)

REDIS: Final[Table] = {
    (Redis.CLOSED, RedisEvent.INITIALIZE): Redis.INITIALIZING,
    (Redis.INITIALIZING, RedisEvent.DRIVER_OK): Redis.RECEIVING,
    (Redis.INITIALIZING, RedisEvent.BUILD_ERR): Redis.BUILD_FAILED,
    (Redis.INITIALIZING, RedisEvent.RECV_ERR): Redis.RECONNECTING,
    (Redis.BUILD_FAILED, RedisEvent.RECV_ERR): Redis.RECONNECTING,
    (Redis.RECONNECTING, RedisEvent.RECV_ERR): Redis.RECONNECTING,
    (Redis.RECONNECTING, RedisEvent.WAIT): Redis.BACKOFF,
    (Redis.BACKOFF, RedisEvent.RECV_ERR): Redis.BACKOFF,
    (Redis.BACKOFF, RedisEvent.BACKOFF): Redis.RECONNECTING,
    (Redis.RECONNECTING, RedisEvent.INITIALIZE): Redis.INITIALIZING,
    **{(state, RedisEvent.DELIVERY): Redis.EXECUTING for state in _WORKING},
    **{(state, RedisEvent.EXEC_OK): Redis.COMPLETED for state in _WORKING},
    (Redis.COMPLETED, RedisEvent.ACK_OK): Redis.IDLE,
    (Redis.IDLE, RedisEvent.IDLE_TICK): Redis.RECEIVING,
    **{(state, RedisEvent.RECV_ERR): Redis.RECONNECTING for state in _WORKING},
    **{(state, RedisEvent.STOP): Redis.DRAINING for state in (*_WORKING, *_AWAY)},
    (Redis.DRAINING, RedisEvent.STOP): Redis.DRAINING,
    (Redis.DRAINING, RedisEvent.RECV_ERR): Redis.CLOSED,
    (Redis.DRAINING, RedisEvent.SETTLED): Redis.CLOSED,
    (Redis.DRAINING, RedisEvent.DEADLINE): Redis.CLOSED,
    (Redis.CLOSED, RedisEvent.STOP): Redis.CLOSED,
    (Redis.CLOSED, RedisEvent.RECV_ERR): Redis.CLOSED,
    (Redis.CLOSED, RedisEvent.SETTLED): Redis.CLOSED,
    (Redis.CLOSED, RedisEvent.DEADLINE): Redis.CLOSED,
}

_COURSE: Final = Course(
    again=RedisEvent.BACKOFF,
    begin=RedisEvent.INITIALIZE,
    refused=(RedisEvent.BUILD_ERR,),
    done=RedisEvent.DRIVER_OK,
    stop=RedisEvent.STOP,
    endings={
        Closing.LOST: RedisEvent.RECV_ERR,
        Closing.SETTLED: RedisEvent.SETTLED,
        Closing.DEADLINE: RedisEvent.DEADLINE,
    },
    wait=RedisEvent.WAIT,
)
opened, end = _COURSE.opened, _COURSE.end


def receiving(machine: Machine) -> None:
    """It is waiting for the next delivery."""
    if machine.state == Redis.IDLE:
        machine.fire(RedisEvent.IDLE_TICK)


def received(machine: Machine) -> None:
    """Deliveries are handed out."""
    if machine.state != Redis.EXECUTING and machine.can(RedisEvent.DELIVERY):
        machine.fire(RedisEvent.DELIVERY)


def settled(machine: Machine) -> None:
    """Verdicts have come."""
    if machine.state == Redis.EXECUTING:
        machine.fire(RedisEvent.EXEC_OK)
        machine.fire(RedisEvent.ACK_OK)
