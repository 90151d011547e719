"""What the client library logs, as a few notices.

Rule 1 (K7): librdkafka writes some twenty lines a second while brokers are away. At most one a second is
        told, and how many it stands for.
Rule 2: chronicle tells what its client's troubles mean in lines of its own; so these are no errors.
Rule 3 (Z4): the password never shows; the log masks everything else that looks like a secret.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from chronicle.core.notice import Notice
from chronicle.transports.kafka.address import Address

EVENT: Final = "kafka.client"
PAUSE: Final = 1.0  # seconds between two lines
LONGEST: Final = 400
THREAD: Final = re.compile(r"\A\[thrd:[^\]]*\]: ")
# The same settings are given to consumers and producers, and each complains about the other's.
OTHERS: Final = re.compile(r"is a (?:consumer|producer) property and will be ignored")


class Chatter:
    """Takes a client's lines: give it to the client as its `logger`."""

    def __init__(
        self, address: Address, notices: deque[Notice], clock: Callable[[], float] = monotonic
    ) -> None:
        self._notices = notices
        self._masked = address.masked
        self._clock = clock
        self._next = float("-inf")
        self._left_out = 0

    def log(self, level: int, template: str, *parts: Any) -> None:
        """One line of the client, as it would be given to a `logging.Logger`. Never raises.

        The parts are the client's name for the kind of line, its own name, and the text.
        """
        try:
            facility, text = str(parts[0]), THREAD.sub("", str(parts[-1]))
        except IndexError:
            facility, text = "", template
        if OTHERS.search(text):
            return
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        self._next = now + PAUSE
        stands_for, self._left_out = 1 + self._left_out, 0
        facts: dict[str, Any] = {"facility": facility}
        if stands_for > 1:
            facts["count"] = stands_for
        told = logging.WARNING if level >= logging.WARNING else logging.DEBUG
        self._notices.append(Notice(EVENT, told, self._masked(text)[:LONGEST], facts))
