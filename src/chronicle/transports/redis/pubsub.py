"""Channels of Redis, as the engine sees them: at most once (S10).

Rule 1: a message is gone from the server when it arrives, so whatever arrives is finished: a stop hands out
        what the server had sent before it heard of the stop, and a lost connection leaves what had come on
        it readable. What must be given up all the same (a fatal exit, a deadline) is counted and told.
Rule 2: there is no second try and there are no dead letters: a message that fails is dropped, and its verdict
        says so. In memory it could be tried again, but a promise that a restart breaks is none: who needs
        tries uses a stream.
Rule 3 (D-7, X7): as much is parsed as there is room for, and the socket is read no further. What a slow
        syncer leaves waits in the socket, then in the server, which drops a subscriber that is too far
        behind (client-output-buffer-limit): the line about the loss says so.
Rule 4: every reconnect is a gap: what was published meanwhile is lost, and that is counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.policy import not_kept
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.words import many
from chronicle.errors import ConnectionLost
from chronicle.transports.redis import states
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.connection import Answer
from chronicle.transports.redis.discovery import connect_anywhere
from chronicle.transports.redis.entries import NAME
from chronicle.transports.redis.options import Mode
from chronicle.transports.redis.poller import GONE, Poller
from chronicle.transports.redis.states import EVERYDAY, REDIS, Redis, RedisEvent
from chronicle.transports.redis.subscription import HUNG_UP, Subscription, channels_in, origin_of
from chronicle.transports.seam import Closing, Connector, DeadLetterKeeper, Promises
from chronicle.transports.tls import tls_context
from chronicle.transports.waker import Waker

MAYBE_LOST: Final = "redis.maybe_lost"
UNFINISHED: Final = "redis.lost_unfinished"
CLOSE_TIMEOUT: Final = 2.0  # seconds that a stop waits for the last messages
COUNTING: Final = 1000  # messages counted at a time


class PubSubTransport:
    """Several channels, heard on one connection."""

    away = 0.0
    unconfirmed = 0
    depth = None  # nothing waits: whoever does not listen misses it

    def __init__(self, connector: Connector) -> None:
        self._address = address_of(connector.url, connector.extras)
        self._channels = channels_in(connector.queue)
        self.promises = Promises(
            NAME,
            settles=False,
            dead_letters=DeadLetterKeeper.NOBODY,
            retries=False,
            backoff=Backoff(0.2, 5.0),
            title="pub/sub",
            labels={"mode": Mode.PUBSUB.value, "channel": connector.queue},
        )
        self.machine = Machine(REDIS, Redis.CLOSED, everyday=EVERYDAY)
        self.notices: deque[Notice] = deque()
        self._context = tls_context(connector.tls) if self._address.tls else None
        self._connector = connector
        self._waker = Waker()
        self._poller: Poller | None = None
        self._live: Subscription | None = None
        self._left: deque[Subscription] = deque()  # ended, and not all that came on them is handed out
        self._lost_at: float | None = None
        self._stopped = False
        self._open = 0  # handed out and not finished

    @property
    def place(self) -> str:
        return self._address.place

    # --- opening ------------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        states.opened(self.machine, stopping, lambda: self._subscribe(stopping), self._let_go)
        return None  # nobody knows how many wait

    def _subscribe(self, stopping: Callable[[], bool]) -> None:
        wire = connect_anywhere(self._address, self._context, name=self._connector.tag, stopping=stopping)
        self._live = Subscription(wire, self._channels)
        self._live.begin(stopping)
        self._poller = Poller(self._waker, wire)
        self._stopped = False
        if self._lost_at is not None:
            away = monotonic() - self._lost_at
            self._lost_at = None
            text = f"subscribed again; what was published in the last {away:.1f}s is lost"
            facts = {"count": 1, "away_ms": round(away * 1000)}
            self.notices.append(Notice(MAYBE_LOST, logging.WARNING, text, facts))

    # --- working ------------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        live, poller = self._live, self._poller
        if not self._stopped:
            if live is None or poller is None:
                raise ConnectionLost("not connected")
            states.receiving(self.machine)
        batch = self._take(room)
        if live is None or poller is None:
            if not batch:
                self._waker.wait(timeout)
            return batch
        # Without room for it, data must wake nobody, here or in an event loop that watches the poller.
        poller.heed(live.wire, data=len(batch) < room)
        if batch:
            return batch
        now = monotonic()
        live.look(now, listening=bool(room))
        gone = poller.sleep(live.wire, now + timeout).get(live.wire.fileno(), 0) & GONE
        if gone and not room:
            # Nobody reads now, so nobody else would notice. What has come is kept (Rule 1).
            live.let_go()
            raise ConnectionLost(f"{self.place}: {HUNG_UP}")
        return self._take(room)

    def _take(self, room: int) -> list[Delivery]:
        """What has come, the oldest first; at most so many."""
        messages: list[Answer] = []
        while self._left and room and not messages:
            messages = self._left[0].take(room)
            if not messages:
                self._left.popleft()
        if self._live is not None and not messages:
            messages = self._live.take(room)
        if not messages:
            return []
        states.received(self.machine)
        self._open += len(messages)
        now, queue = round(time() * 1000), self._connector.queue
        # The time of its arrival: the server knows no other (R-001-22).
        return [
            Delivery(message[-1], queue=queue, transport=NAME, timestamp=now, origin=origin_of(message))
            for message in messages
        ]

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Everything is final at once: nobody has to be told (R-001-25)."""
        for settlement in work:
            settlement.verdict = not_kept(settlement.verdict)
            settlement.fate = Fate.DONE
            self._open -= settlement.verdict.action is not Action.LEAVE
        if work:
            states.settled(self.machine)
        return work

    def is_empty(self) -> bool | None:
        return None  # nothing waits in a channel

    def wake(self) -> None:
        self._waker.wake()

    def fileno(self) -> int | None:
        return self._poller.fileno() if self._poller is not None else None

    # --- ending -------------------------------------------------------------------------------------

    def stop(self, patience: float) -> None:
        self.machine.fire(RedisEvent.STOP)
        if self._stopped:
            return
        self._stopped = True
        if self._live is not None:
            self._live.end(min(patience, CLOSE_TIMEOUT))
            self._let_go()

    def close(self, why: Closing = Closing.SETTLED) -> None:
        if why is Closing.LOST:
            if self._live is not None and not self._stopped:
                self._lost_at = self._lost_at or monotonic()
            self._let_go()
        else:
            self._let_go()
            self._forget()
        states.end(self.machine, why)

    def _let_go(self) -> None:
        """Hang up; what has come is kept (Rule 1), but not of one loss after the other: memory has an end."""
        live, self._live = self._live, None
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.close()
        if live is None:
            return
        live.let_go()
        if not self._left or self._stopped:
            self._left.append(live)
        else:
            self._tell_of_lost(_count(live), "could not be kept here: too much waits already")

    def _forget(self) -> None:
        """Nothing will be handed out or finished any more."""
        lost = self._open + sum(map(_count, self._left))
        self._left.clear()
        self._open, self._lost_at = 0, None
        self._tell_of_lost(lost, "had arrived and were not finished")

    def _tell_of_lost(self, number: int, why: str) -> None:
        if number:
            text = f"{many(number, 'message')} {why}: pub/sub keeps nothing, so this is lost"
            self.notices.append(Notice(UNFINISHED, logging.ERROR, text, {"count": number}))


def _count(left: Subscription) -> int:
    """How many messages had come on this connection and were not taken."""
    number = 0
    while messages := left.take(COUNTING):
        number += len(messages)
    return number
