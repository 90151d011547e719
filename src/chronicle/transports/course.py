"""How a consumer's machine begins and ends, for brokers whose consumers pass through the same stations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from chronicle.core.frozen import frozen
from chronicle.core.machine import Machine
from chronicle.errors import BrokerError, BrokerRefused
from chronicle.transports.seam import Closing

T = TypeVar("T")


@frozen
class Course:
    """The events of a broker's table that begin and end a connection."""

    again: str  # a pause between two tries is over
    begin: str
    refused: tuple[str, ...]  # whichever is possible where it stands
    done: str
    stop: str
    endings: Mapping[Closing, str]
    wait: str  # before another try

    def opened(
        self,
        machine: Machine,
        stopping: Callable[[], bool],
        attempt: Callable[[], T],
        let_go: Callable[[], None],
    ) -> T | None:
        """What the attempt to connect comes to; None if it was called off. When it fails, all is let go."""
        let_go()
        if machine.can(self.again):
            machine.fire(self.again)
        machine.fire(self.begin)
        if stopping():
            return None
        try:
            result = attempt()
        except BrokerRefused:
            let_go()
            machine.fire(next(event for event in self.refused if machine.can(event)))
            raise
        except BaseException as error:
            let_go()
            if isinstance(error, BrokerError) and stopping():
                return None  # the stop ended a wait
            raise
        machine.fire(self.done)
        return result

    def end(self, machine: Machine, why: Closing) -> None:
        """The connection is closed."""
        if why is not Closing.LOST:
            machine.fire(self.stop)
        machine.fire(self.endings[why])
        if machine.can(self.wait):
            machine.fire(self.wait)
