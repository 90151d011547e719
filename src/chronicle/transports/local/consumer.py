"""Consuming from a queue file, beside as many other processes as like.

Rule 1: a message is removed by the same transaction that settles it; a process killed at any point loses
        nothing. What it held is free again as soon as another process looks, about a second later.
Rule 2: publishing waits for the disk. Settling does not: a power cut may bring a settled message back, and
        never takes one away.
Rule 3: `redelivered` and `counted` tell of tries that ended without success: a requeue, or a holder that
        died. A message given back by a clean close was interrupted, not failed: it comes back exactly as it
        was (D-11).
Rule 4: an idle consumer only reads, so it takes no lock from anybody.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.core.topology import dead_letter_queue
from chronicle.errors import BrokerRefused, ConnectionLost, NoSuchQueue
from chronicle.transports.local.address import file_of
from chronicle.transports.local.contents import story, unpack
from chronicle.transports.local.owners import Owner, bury, tokens
from chronicle.transports.local.store import Claim, Row, Store
from chronicle.transports.local.topology import make_queue
from chronicle.transports.seam import Closing, Connector, Promises
from chronicle.transports.waker import Waker

LOOK: Final = 0.05  # seconds between two looks at an idle queue
PATROL: Final = 1.0  # seconds between two searches for dead holders
NAMED: Final = 10  # queues that an error lists


class LocalTransport:
    """One queue of one file, as the engine sees it."""

    promises = Promises("local", delays=True, counts=True)

    def __init__(self, connector: Connector, *, clock: Callable[[], float] = time.time) -> None:
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.place, self._path = file_of(connector.url)
        self._folder = self._path.with_name(f"{self._path.name}-owners")
        self._name = connector.queue
        self._tag = connector.tag
        self._declare = connector.declare is not None
        self._clock = clock
        self._waker = Waker()
        self._store: Store | None = None
        self._owner: Owner | None = None
        self._queue = 0
        self._stopped = False
        self._seen = -1  # the file's data version at the last look
        self._next: int | None = 0  # when the next message can be claimed, as far as that look told
        self._patrolled = 0.0

    def open(self, stopping: Callable[[], bool]) -> int | None:
        """Open the file, check the queue, free what dead processes held; how many messages wait."""
        self._let_go()
        self.machine.fire(EmbeddedEvent.OPEN)
        if stopping():
            return None
        if self._declare:
            make_queue(self._path, self.place, self._name)
        if not self._path.exists():
            raise BrokerRefused(f"{self.place} does not exist", self._how_to_publish())
        try:
            self._store = store = Store(self._path, self.place, durable=False)
            with store.reading(opening=True):
                queue, names = store.queue_id(self._name), store.queue_names()
            if queue is None:
                there = ", ".join(map(repr, names[:NAMED])) + (" …" if len(names) > NAMED else "")
                raise NoSuchQueue(
                    f"{self.place} has no queue {self._name!r}; it has {there or 'none'}",
                    self._how_to_publish(),
                )
            self._queue = queue
            self._owner = self._enrol()
            self._patrol(store, self._owner)
            self._seen, self._next, self._stopped = -1, 0, False
            with store.reading(opening=True):
                waiting = store.count(queue)
        except BaseException:
            self._let_go()
            raise
        self.machine.fire(EmbeddedEvent.OPENED)
        return waiting

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        """Claim what is free; sleep between looks until there is something, the time is up, or `wake`."""
        store, owner = self._opened()
        deadline = time.monotonic() + timeout
        while True:
            if time.monotonic() - self._patrolled >= PATROL:
                self._patrol(store, owner)
            taking = room > 0 and not self._stopped
            if taking and (rows := self._claim(store, owner, room)):
                return [self._delivery(row, owner) for row in rows]
            left = deadline - time.monotonic()
            if self._waker.wait(min(left, self._pause() if taking else PATROL)) or left <= 0:
                return ()

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Carry the verdicts out in one transaction, all final when it is over."""
        token = self._owner.token if self._owner is not None else None
        mine = [s for s in work if s.delivery.handle.owner == token]
        fates: dict[int, Fate] = {}
        if mine:
            store, _ = self._opened()
            with store.writing():
                fates = {id(s): self._carry_out(store, s) for s in mine}
            self._next = 0  # a requeue may be due, and our own changes do not show in the data version
        for settlement in work:
            settlement.fate = fates.get(id(settlement), Fate.STALE)
        return work

    def is_empty(self) -> bool | None:
        """Whether there is no message that nobody holds, kept back or not."""
        store, _ = self._opened()
        with store.reading():
            return store.next_available(self._queue) is None

    def stop(self, patience: float) -> None:  # noqa: ARG002 - there is nobody to wait for
        """Claim nothing more; what is held can still be settled."""
        self._stopped = True
        self.machine.fire(EmbeddedEvent.STOP)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Give back what was not settled, untouched, and let go."""
        self._let_go()
        if why is not Closing.LOST:
            self.machine.fire(EmbeddedEvent.STOP)
        self.machine.fire(EmbeddedEvent(why))

    def _let_go(self) -> None:
        store, self._store = self._store, None
        owner, self._owner = self._owner, None
        if store is not None:
            if owner is not None:
                store.give_back(owner.token)
            store.close()
        if owner is not None:
            owner.leave()

    def wake(self) -> None:
        """End a wait in `receive`. Called from any thread."""
        self._waker.wake()

    def fileno(self) -> int | None:
        """Nobody can tell from outside."""
        return None

    # --- holding ------------------------------------------------------------------------------------

    def _opened(self) -> tuple[Store, Owner]:
        if self._store is None or self._owner is None:
            raise ConnectionLost(f"{self.place} is not open")
        return self._store, self._owner

    def _enrol(self) -> Owner:
        try:
            return Owner(self._folder)
        except OSError as error:
            raise BrokerRefused(
                f"{self._folder.name} beside {self.place} cannot be used: {error.strerror or error}",
                "make the folder writable for this user, on a local disk",
            ) from error

    def _patrol(self, store: Store, owner: Owner) -> None:
        """Free the messages of dead holders, and see that nobody takes us for one."""
        self._patrolled = time.monotonic()
        store.confirm()
        if not owner.valid:
            raise ConnectionLost(f"the lock file {owner.token} beside {self.place} was removed")

        def release(token: str) -> None:
            if token in holding:
                with store.writing():
                    store.release_dead(token)
                self._next = 0

        with store.reading():
            holding = set(store.owners())
        try:
            for token in (holding | set(tokens(self._folder))) - {owner.token}:
                bury(self._folder, token, release)
        except OSError as error:
            raise ConnectionLost(
                f"{self._folder.name} beside {self.place} cannot be used: {error.strerror}"
            ) from error

    def _claim(self, store: Store, owner: Owner, room: int) -> list[Row]:
        now = self._now()
        with store.reading():
            version = store.data_version()
            if version == self._seen and (self._next is None or self._next > now):
                return []
            self._seen, self._next = version, store.next_available(self._queue)
        if self._next is None or self._next > now:
            return []
        with store.writing():
            rows = store.claim(self._queue, owner.token, now, room)
        self._next = 0
        return rows

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _pause(self) -> float:
        """How long to sleep before the next look."""
        if not self._next:
            return LOOK
        return min(LOOK, max(0.0, self._next / 1000 - self._clock()))

    # --- settling -----------------------------------------------------------------------------------

    def _carry_out(self, store: Store, settlement: Settlement) -> Fate:
        claim: Claim = settlement.delivery.handle
        match settlement.verdict.action:
            case Action.ACK | Action.DROP:
                done = store.remove(claim)
            case Action.REQUEUE | Action.RETRY:
                done = store.requeue(claim, self._back_at(settlement))
            case Action.DEAD_LETTER:
                queue = store.ensure_queue(dead_letter_queue(settlement.delivery.queue))
                done = store.move(claim, queue, story(settlement, self._tag, self._now()))
            case Action.LEAVE:
                done = True
        return Fate.DONE if done else Fate.STALE

    def _back_at(self, settlement: Settlement) -> int | None:
        delay = settlement.verdict.delay or 0.0
        return math.ceil((self._clock() + delay) * 1000) if delay > 0 else None

    def _delivery(self, row: Row, owner: Owner) -> Delivery:
        written = row.envelope is not None or row.death is not None
        return Delivery(
            row.body,
            queue=self._name,
            transport=self.promises.transport,
            redelivered=bool(row.redelivered),
            counted=row.tries,
            timestamp=row.published_at,
            origin={"id": row.id},
            handle=Claim(row.id, owner.token, row.tries),
            open_envelope=unpack if written else None,
            raw_envelope=(row.envelope, row.death),
        )

    def _how_to_publish(self) -> str:
        where, queue = shlex.quote(f"local:{self.place}"), shlex.quote(self._name)
        return f"put a message there first: chronicle publish --url {where} --queue {queue} FILE…"
