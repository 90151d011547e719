"""Queues for `--on-failure retry:N`: the retry queues and the dead letters that chronicle itself fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chronicle.core.queues import QueueType, dead_letter_queue, retry_queue_name
from chronicle.core.topology import retry_queue
from chronicle.core.units import format_duration
from support.queues import Queues

DELAYS: Final = (0.1, 0.3)


def options(tries: int, delays: Sequence[float] = DELAYS) -> tuple[str, ...]:
    """What the command is told. Here messages fail by plan, which the brake would take for an outage."""
    steps = ",".join(map(format_duration, delays))
    return ("--on-failure", f"retry:{tries}", "--retry-delay", steps, "--brake", "0")


def prepare(queues: Queues, queue: str, delays: Sequence[float] = DELAYS, *, quorum: bool = False) -> str:
    """Make the retry queues of a queue, and the queue of its dead letters, whose name is returned."""
    for delay in delays:
        waiting = retry_queue(queue, delay, QueueType.QUORUM if quorum else QueueType.CLASSIC)
        queues.declare(waiting.name, waiting.arguments)
    return queues.declare(dead_letter_queue(queue), quorum=quorum)


def waiting(queues: Queues, queue: str, delays: Sequence[float] = DELAYS) -> int:
    """How many messages wait for another try."""
    return sum(queues.depth(retry_queue_name(queue, delay)) for delay in delays)
