"""One worker's place: what it is working on, where anybody can see it.

Rule 1: the worker writes the delivery and nothing else, so a message costs no look at a clock. The pump looks
        at all places a few times a second; how long a delivery has been in one is what it has seen.
Rule 2: a syncer that is past its time is interrupted where its worker can be (`interrupt`). The mark
        `expired` is set on the worker's own thread, and only while it still has that delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.telemetry.redaction import Place, stack_of


class Slot:
    """The place of one worker."""

    __slots__ = ("blocks", "delivery", "expired", "interrupt", "places")

    def __init__(
        self,
        places: Callable[[], Iterator[Place]],
        blocks: Callable[[], bool] = lambda: True,
        interrupt: Callable[[Delivery], None] | None = None,
    ) -> None:
        self.delivery: Delivery | None = None
        self.places = places  # where its syncer is in its code, the outermost call first
        self.blocks = blocks  # whether it keeps its thread to itself now
        self.interrupt = interrupt  # None: nobody can
        self.expired = False  # it was interrupted because it was past its time

    def stack(self) -> str:
        """Where its syncer is, in files and functions."""
        return stack_of(self.places())


def awaiting(coroutine: Any) -> Iterator[Place]:
    """Where a suspended coroutine is, and what it waits for, as far as that is written in Python."""
    while coroutine is not None:
        frame = _first_of(coroutine, "cr_frame", "gi_frame", "ag_frame")
        if frame is None:
            return
        yield frame.f_code, frame.f_lineno
        coroutine = _first_of(coroutine, "cr_await", "gi_yieldfrom", "ag_await")


def _first_of(coroutine: Any, *names: str) -> Any:
    found = (getattr(coroutine, name, None) for name in names)
    return next((one for one in found if one is not None), None)


def calling(frame: Any) -> Iterator[Place]:
    """Where a thread is, the outermost call first."""
    found: list[Place] = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return reversed(found)
