"""Acknowledgements: sent together, and kept until the server has confirmed them.

Rule: an acknowledgement is final when it is decided: the syncer has returned True, and nothing can change
        that. If the connection is lost before the server confirmed it, it is sent again after the reconnect,
        before anything is read (D-13). The pending list outlives a connection, so a late one is as good.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
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
        self._unsure: list[bytes] = []  # perhaps not pending any more: sent before, or trimmed
        self._decided: list[bytes] = []
        self._sent: deque[tuple[list[bytes], bool]] = deque()  # one XACK each, in order; whether unsure

    def __iter__(self) -> Iterator[bytes]:
        """Those that the server has not confirmed."""
        yield from self._unsure
        yield from self._decided
        for batch, _ in self._sent:
            yield from batch

    def add(self, ids: Iterable[bytes]) -> None:
        self._decided.extend(ids)

    def forget(self, ids: Iterable[bytes]) -> None:
        """Acknowledge what the stream has no more; the server may have forgotten it by itself."""
        self._unsure.extend(ids)

    def send(self, dialogue: Dialogue) -> None:
        """Put all that were decided into one command; those that may be gone into one before it."""
        for batch, unsure in ((self._unsure, True), (self._decided, False)):
            if batch:
                self._sent.append((batch.copy(), unsure))
                dialogue.ask(self._confirmed, "XACK", self._stream, self._group, *batch)
                batch.clear()

    def send_again(self) -> None:
        """There is a new connection: what was not confirmed goes first."""
        again = self._all_sent()
        self._unsure += again
        if again:
            self._tell(
                RETRIED,
                logging.WARNING,
                "the connection was lost before these acknowledgements were confirmed; they are sent again: "
                f"{len(again)}",
                again,
            )

    def give_up(self) -> int:
        """The run ends: how many the server has not confirmed."""
        ids = [*self]
        self._sent.clear()
        self._unsure.clear()
        self._decided.clear()
        if ids:
            self._tell(
                UNCONFIRMED,
                logging.ERROR,
                "acknowledgements that could not be delivered, so that these entries will be handled again: "
                f"{len(ids)}",
                ids,
            )
        return len(ids)

    def _all_sent(self) -> list[bytes]:
        sent = [id_ for batch, _ in self._sent for id_ in batch]
        self._sent.clear()
        return sent

    def _confirmed(self, answer: Answer) -> None:
        batch, unsure = self._sent.popleft()
        missing = len(batch) - answer
        if missing and not unsure:
            # Which of them, Redis does not say.
            self._tell(
                MISSED,
                logging.WARNING,
                "entries that were no longer pending when they were acknowledged, because another consumer "
                f"had taken them over, or the group was deleted: {missing}",
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
