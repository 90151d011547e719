"""The publishes of one channel that the broker has not answered yet.

Rule 1: the broker numbers the publishes of a channel from one; so do we. An answer is for one number, or for
        all up to it.
Rule 2 (RB7): a returned message is confirmed all the same, although no queue has it. It comes back without
        its number, so everything on its way to that queue counts as returned: the queue does not exist, and
        what it accepted before is gone with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pika import spec

T = TypeVar("T")

CONFIRM_TIMEOUT: Final = 90.0  # longer than the blocked notice may last
NO_TIME: Final = float("inf")  # of what nobody waits for
NOT_TAKEN: Final = "the broker did not accept it: the queue is full or in trouble"


@dataclass(slots=True)
class _Publish(Generic[T]):
    item: T
    target: str
    at: float
    came_back: bool = False


class Confirms(Generic[T]):
    """What was published and is not answered yet, oldest first."""

    def __init__(self) -> None:
        self._number = 0
        self._open: dict[int, _Publish[T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def published(self, item: T, target: str, now: float) -> None:
        """This was published to that queue, next in line."""
        self._number += 1
        self._open[self._number] = _Publish(item, target, now)

    def came_back(self, target: str) -> None:
        """The broker returned a message that was meant for this queue."""
        for publish in self._open.values():
            if publish.target == target:
                publish.came_back = True

    def answered(self, answer: Any) -> list[tuple[T, str]]:
        """What this ack or nack is about, each with the reason why it was not accepted, or none."""
        number = answer.delivery_tag
        numbers = [known for known in self._open if known <= number] if answer.multiple else [number]
        refusal = "" if isinstance(answer, spec.Basic.Ack) else NOT_TAKEN
        done = [self._open.pop(number) for number in numbers if number in self._open]
        return [(publish.item, _gone(publish.target) if publish.came_back else refusal) for publish in done]

    def given_up(self) -> list[T]:
        """What nobody will answer any more; it is forgotten here."""
        given_up = [publish.item for publish in self._open.values()]
        self._open.clear()
        return given_up

    def overdue(self, now: float, limit: float = CONFIRM_TIMEOUT) -> bool:
        """Whether the oldest has waited too long for any answer; one of no time may wait for ever."""
        for publish in self._open.values():
            if publish.at != NO_TIME:
                return now - publish.at > limit
        return False


def _gone(target: str) -> str:
    return f"the queue {target!r} is gone: a message was returned"
