"""Acknowledgements: sent together, and kept until the server has confirmed them.

Rule: an acknowledgement is final when it is decided: the syncer has returned True, and nothing can change that. If
        the connection is lost before the server confirmed it, it is sent again after the reconnect, before
        anything is read (D-13). The pending list outlives a connection, so a late one is as good.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from chronicle.core.notice import Notice
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.dialogue import Dialogue

RETRIED: Final = "redis.ack_retried"
MISSED: Final = "redis.ack_missed"
UNCONFIRMED: Final = "redis.ack_unconfirmed"
NAMED: Final = 10  # ids that a line lists


class Acks:
    """The acknowledgements of one group."""

    def __init__(self, stream: str, group: str, notices: deque[Notice]) -> None:
        self._stream = stream
        self._group = group
        self._notices = notices
        self._decided: list[bytes] = []
        self._sent: deque[list[bytes]] = deque()  # one XACK each, in order

    def __len__(self) -> int:
        """How many the server has not confirmed."""
        return len(self._decided) + sum(map(len, self._sent))

    def add(self, ids: Iterable[bytes]) -> None:
        self._decided.extend(ids)

    def send(self, dialogue: Dialogue) -> None:
        """Put all that were decided into one command."""
        if self._decided:
            batch, self._decided = self._decided, []
            self._sent.append(batch)
            dialogue.ask(self._confirmed, "XACK", self._stream, self._group, *batch)

    def send_again(self) -> None:
        """There is a new connection: what was not confirmed goes first."""
        again = [id_ for batch in self._sent for id_ in batch]
        self._sent.clear()
        self._decided = again + self._decided
        if again:
            self._tell(
                RETRIED,
                logging.WARNING,
                f"{len(again)} acknowledgements were not confirmed before the connection was lost, "
                "and are sent again",
                again,
            )

    def give_up(self) -> None:
        """The run ends without a connection."""
        ids = [id_ for batch in (*self._sent, self._decided) for id_ in batch]
        self._sent.clear()
        self._decided.clear()
        if ids:
            self._tell(
                UNCONFIRMED,
                logging.ERROR,
                f"{len(ids)} acknowledgements could not be delivered: these entries were handled, and will be "
                "handled again",
                ids,
            )

    def _confirmed(self, answer: Answer) -> None:
        batch = self._sent.popleft()
        if isinstance(answer, int) and answer < len(batch):
            # Which of them, Redis does not say.
            missing = len(batch) - answer
            self._tell(
                MISSED,
                logging.WARNING,
                f"{missing} acknowledged entries were no longer pending: another consumer had taken them over, "
                "or the group was deleted",
                batch,
                missing,
            )

    def _tell(self, event: str, level: int, text: str, ids: list[bytes], count: int | None = None) -> None:
        facts = {
            "count": len(ids) if count is None else count,
            "stream": self._stream,
            "group": self._group,
            "ids": [id_.decode("ascii", "replace") for id_ in ids[:NAMED]],
        }
        self._notices.append(Notice(event, level, text, facts))
