"""Channels heard on one connection.

Rule 1: a name with one of `*?[` is a pattern (PSUBSCRIBE).
Rule 2: messages are parsed when somebody has room for them. What has come on a connection that is not used
        any more, because it was lost or the run stops, can still be taken.
Rule 3: a silent server is asked whether it is there, but only while somebody listens: an answer that waits
        behind unread messages is no sign of death.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from chronicle.errors import BrokerError, ConnectionLost, SettingError
from chronicle.transports.redis.connection import ANSWER_TIMEOUT, CLOSED, TURN, Answer, Wire

QUIET: Final = 5.0  # seconds without a word from the server; then it is asked whether it is there
PATTERN: Final = frozenset("*?[")
MESSAGE: Final = b"message"
MATCHED: Final = b"pmessage"
HUNG_UP: Final = (
    f"{CLOSED}; unless it was restarted, it may have dropped a subscriber that reads too slowly "
    "(client-output-buffer-limit pubsub): raise --concurrency, or use a stream"
)


def channels_in(text: str) -> tuple[str, ...]:
    """The channels and patterns of a queue's name, each once; SettingError if one is empty."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise SettingError(
            "--queue has an empty channel name",
            "separate channels with single commas, for example news,orders.*",
        )
    return tuple(dict.fromkeys(names))


def is_pattern(channel: str) -> bool:
    return not PATTERN.isdisjoint(channel)


def origin_of(message: Answer) -> dict[str, Any]:
    """Where a message came from."""
    if message[0] == MESSAGE:
        return {"channel": _text(message[1])}
    return {"channel": _text(message[2]), "pattern": _text(message[1])}


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class Subscription:
    """One connection, and the channels it has subscribed to."""

    def __init__(self, wire: Wire, channels: tuple[str, ...]) -> None:
        self.wire = wire
        self._channels = channels
        self._early: deque[Answer] = deque()  # came before all channels were subscribed
        self._heard = monotonic()
        self._asked: float | None = None  # when we asked whether the server is there
        self._over = False  # what has come can still be taken

    def begin(self, stopping: Callable[[], bool]) -> None:
        """Subscribe, and see it confirmed; raises BrokerRefused or ConnectionLost."""
        wire = self.wire
        for channel in self._channels:
            wire.put_silent("PSUBSCRIBE" if is_pattern(channel) else "SUBSCRIBE", channel)
        wire.flush()
        missing = len(self._channels)
        deadline = monotonic() + ANSWER_TIMEOUT
        while missing:
            if stopping() or monotonic() >= deadline:
                raise ConnectionLost(f"{wire.address.place}: no answer in time")
            wire.wait(TURN)
            wire.flush()
            while missing and (answers := wire.take(1)):
                if _is_message(answers[0]):
                    self._early.append(answers[0])
                else:
                    wire.value(answers[0])
                    missing -= 1
        self._heard = monotonic()

    def take(self, most: int) -> list[Answer]:
        """Messages that have come; raises ConnectionLost when there are no more of them."""
        if self._early:
            return [self._early.popleft() for _ in range(min(most, len(self._early)))]
        while answers := self._read(most):
            if messages := [answer for answer in answers if _is_message(answer)]:
                return messages
        return []

    def _read(self, most: int) -> list[Answer]:
        try:
            answers = self.wire.take(most)
        except BrokerError as error:
            if self._over:
                return []  # everybody knows
            if CLOSED in str(error):
                raise ConnectionLost(f"{self.wire.address.place}: {HUNG_UP}") from None
            raise
        if answers and not self._over:
            for answer in answers:
                # An answer to our question, be it that this user may not ask, shows that the server is there.
                if isinstance(answer, Exception) and self._asked is None:
                    raise ConnectionLost(str(self.wire.trouble(answer)))
            self._heard, self._asked = monotonic(), None
        return answers

    def look(self, now: float, *, listening: bool) -> None:
        """Raise ConnectionLost if the server has been silent for too long."""
        if not listening:
            self._heard = now
            self._asked = now if self._asked is not None else None
        elif self._asked is not None:
            if now - self._asked > ANSWER_TIMEOUT:
                raise ConnectionLost(f"{self.wire.address.place}: no answer in time")
        elif now - self._heard > QUIET:
            self.wire.put_silent("PING")
            self.wire.flush()
            self._asked = now

    def end(self, patience: float) -> None:
        """Unsubscribe, and keep what was sent before the server heard of it."""
        if self._over:
            return
        # Nobody knows this name, and the server confirms it last: then there is no more to come.
        last = secrets.token_hex(16)
        deadline = monotonic() + patience
        try:
            for command in (("PUNSUBSCRIBE",), ("UNSUBSCRIBE",), ("UNSUBSCRIBE", last)):
                self.wire.put_silent(*command)
            self.wire.flush()
            while self.wire.swallow() and not self.wire.ends_with(f"{last}\r\n:0\r\n".encode()):
                left = deadline - monotonic()
                if left <= 0:
                    break
                self.wire.wait(min(left, TURN))
                self.wire.flush()
        except BrokerError:
            pass  # then that was all
        self.let_go()

    def let_go(self) -> None:
        """Hang up; what has come can still be taken."""
        if not self._over:
            self._over = True
            if not self.wire.closed:
                self.wire.swallow()
            self.wire.close()


def _is_message(answer: Answer) -> bool:
    return isinstance(answer, list) and answer[0] in (MESSAGE, MATCHED)
