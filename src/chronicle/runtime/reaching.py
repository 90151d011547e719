"""Trying to reach a broker at the start, for as long as the operator allows (D-9)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from chronicle.errors import BrokerError
from chronicle.runtime.job import Lifecycle
from chronicle.runtime.patience import Patience
from chronicle.transports.seam import Promises

T = TypeVar("T")


def reach(
    attempt: Callable[[], T],
    startup_timeout: float,
    tell: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    luck: Callable[[], float] = random.random,
) -> T:
    """What the attempt gives; an absent broker is tried again until the time is over."""
    patience = Patience(Lifecycle(startup_timeout), Promises("").backoff, luck, clock())
    while True:
        try:
            return attempt()
        except BrokerError as error:
            delay = patience.failed(clock())
            if delay is None:
                raise
            tell(f"{error}; trying again")
            sleep(delay)
