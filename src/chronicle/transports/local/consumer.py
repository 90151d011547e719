"""Consuming from a queue file, alongside any number of other processes.

Rule 1: a message is removed by the same transaction that settles it; a process killed at any point loses
        nothing. What it held is free again as soon as another process checks, about a second later.
Rule 2: publishing waits for the disk. Settling does not: a power cut may bring a settled message back, but
        never loses one.
Rule 3: `redelivered` and `counted` reflect tries that ended without success: a requeue, or a holder that
        died. A message given back by a clean close was interrupted, not failed: it comes back exactly as it
        was (D-11).
Rule 4: an idle consumer only reads, so it never blocks a writer.
Rule 5: a locked file or a full disk is not a lost connection (stall.py). Verdicts wait until they can be
        written, and nothing is claimed that could not be settled: after a stall that is proven first.
"""

from __future__ import annotations

import errno
import logging
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.core.states import EMBEDDED, Embedded, EmbeddedEvent
from chronicle.errors import BrokerRefused, BrokerUnreachable, ChronicleError, ConnectionLost, NoSuchQueue
from chronicle.transports.local.address import file_of
from chronicle.transports.local.contents import names_trace, unpack
from chronicle.transports.local.owners import Owner, bury, tokens
from chronicle.transports.local.schema import Stalled
from chronicle.transports.local.stall import Stall
from chronicle.transports.local.store import Claim, Row, Store
from chronicle.transports.local.topology import make_queue
from chronicle.transports.local.verdicts import Verdicts
from chronicle.transports.seam import Closing, Connector, Promises
from chronicle.transports.waker import Waker

LOOK: Final = 0.05  # seconds between two checks of an idle queue
PATROL: Final = 1.0  # seconds between two searches for dead holders
BRIEFLY: Final = 0.1  # seconds that a turn may wait for other writers, well below the pump's pulse
COUNT: Final = 2.0  # seconds between two counts of what waits, at least …
COUNT_SHARE: Final = 100  # … and so many times as long as a count takes
STRANGER: Final = "queue.stranger"
NAMED: Final = 10  # queues that an error lists
# Pages that claiming and settling may write: for every message that can be held, and for the indexes. Never
# more than the write-ahead log has anyway before SQLite begins it anew.
PAGES_EACH: Final = 4
PAGES_MORE: Final = 64
PAGES_MOST: Final = 1000


class LocalTransport:
    """One queue of one file, as the engine sees it."""

    promises = Promises("local", delays=True, counts=True)
    away = 0.0
    unconfirmed = 0

    def __init__(self, connector: Connector, *, clock: Callable[[], float] = time.time) -> None:
        self.machine = Machine(EMBEDDED, Embedded.CLOSED)
        self.notices: deque[Notice] = deque()
        self.place, self._path = file_of(connector.url)
        self._folder = self._path.with_name(f"{self._path.name}-owners")
        self._name = connector.queue
        self._room = min(PAGES_MORE + PAGES_EACH * connector.prefetch, PAGES_MOST)
        self._declare = connector.declare is not None
        self._clock = clock
        self._waker = Waker()
        self._verdicts = Verdicts(connector.tag, clock)
        self._final: list[Settlement] = []  # and not yet returned
        self._stall = Stall(self.notices)
        self._proven = False  # that there is room to settle what is claimed
        self._strangers: set[str] = set()  # holders that were told of: other users' lock files
        self._store: Store | None = None
        self._owner: Owner | None = None
        self._queue = 0
        self._stopped = False
        self._seen = -1  # the file's data version at the last check
        self._next: int | None = 0  # when the next message can be claimed, as of that check
        self._patrolled = 0.0
        self._waiting: int | None = None  # as of the last count
        self._count_at = 0.0

    @property
    def depth(self) -> int | None:
        """Counted anew when it is looked at, but not all the time: a count goes through the whole queue."""
        begun = time.monotonic()
        if self._store is not None and begun >= self._count_at:
            with suppress(ChronicleError), self._store.reading():
                self._waiting = self._store.count(self._queue)
            now = time.monotonic()
            self._count_at = now + max(COUNT, COUNT_SHARE * (now - begun))
        return self._waiting

    def open(self, stopping: Callable[[], bool]) -> int | None:
        """Open the file, check the queue, free what dead processes held; how many messages are waiting."""
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
            store.reserve(self._room, opening=True)
            self._free_the_dead(store, self._owner)
            self._patrolled = time.monotonic()
            self._seen, self._next, self._stopped = -1, 0, False
            self._count_at = 0.0
            self._stall, self._proven = Stall(self.notices), True
            with store.reading(opening=True):
                waiting = store.count(queue)
                store.wait_for_others(BRIEFLY)
        except BaseException:
            self._let_go()
            raise
        self.machine.fire(EmbeddedEvent.OPENED)
        self._waiting = waiting
        return waiting

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        """Claim what is free; sleep between checks until there is something, the time is up, or `wake`."""
        store, owner = self._opened()
        deadline = time.monotonic() + timeout
        while True:
            self._patrol(store, owner)
            taking = room > 0 and not self._stopped and not self._verdicts
            if taking and (rows := self._claim(store, owner, room)):
                return [self._delivery(row, owner) for row in rows]
            now = time.monotonic()
            left, later = deadline - now, self._stall.left(now)
            pause = later if self._verdicts else max(later, self._pause()) if taking else PATROL
            # Verdicts that wait are tried again in `settle`.
            if self._waker.wait(min(left, pause)) or left <= 0 or self._verdicts:
                return ()

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        """Carry out the verdicts in one transaction; what cannot be written now is tried again later."""
        self._final += self._verdicts.take_in(work, self._owner.token if self._owner is not None else None)
        if self._verdicts and not self._stall.left(time.monotonic()):
            store, _ = self._opened()
            with self._trying():
                self._final += self._verdicts.write(store)
                self._stall.passed(time.monotonic())
                self._next = 0  # a requeue may be due, and our own changes do not show in the data version
        final, self._final = self._final, []
        return final

    def is_empty(self) -> bool | None:
        """Whether there are no free messages, not even delayed ones."""
        store, _ = self._opened()
        try:
            with store.reading():
                return store.next_available(self._queue) is None
        except Stalled:
            return None

    def stop(self, patience: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Claim nothing more; what is held can still be settled."""
        self._stopped = True
        self._stall.hurry()
        self.machine.fire(EmbeddedEvent.STOP)

    def close(self, why: Closing = Closing.SETTLED) -> None:
        """Give back what was not settled, unchanged, and close the file."""
        self._let_go()
        if why is not Closing.LOST:
            self.machine.fire(EmbeddedEvent.STOP)
        self.machine.fire(EmbeddedEvent(why))

    def _let_go(self) -> None:
        store, self._store = self._store, None
        owner, self._owner = self._owner, None
        self._verdicts.forget()
        self._final.clear()
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
        """There is no descriptor to watch."""
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
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise BrokerUnreachable(
                    f"no lock file can be created next to {self.place}: the disk is full", "free some space"
                ) from error
            raise BrokerRefused(
                f"{self._folder.name} next to {self.place} cannot be used: {error.strerror or error}",
                "make the folder writable for this user, on a local disk",
            ) from error

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """Code for which the file may be locked or the disk full: that is logged, and tried again later."""
        try:
            yield
        except Stalled as error:
            self._proven = False
            self._stall.failed(error, time.monotonic(), len(self._verdicts))

    def _patrol(self, store: Store, owner: Owner) -> None:
        """Now and then, check that our own lock file is still there, and whether other holders are dead."""
        now = time.monotonic()
        if now - self._patrolled < PATROL:
            return
        self._patrolled = now
        store.confirm()
        if not owner.valid:
            raise ConnectionLost(f"the lock file {owner.token} next to {self.place} was removed")
        if not self._stall.left(now):
            with self._trying():
                self._free_the_dead(store, owner)

    def _free_the_dead(self, store: Store, owner: Owner) -> None:
        """Free the messages of dead holders."""

        def release(token: str) -> None:
            if token in holding:
                with store.writing():
                    store.release_dead(token)
                self._next = 0

        with store.reading():
            holding = set(store.owners())
        try:
            for token in (holding | set(tokens(self._folder))) - {owner.token}:
                if not bury(self._folder, token, release):
                    self._tell_of_stranger(token)
        except OSError as error:
            raise ConnectionLost(
                f"{self._folder.name} next to {self.place} cannot be used: {error.strerror}"
            ) from error

    def _tell_of_stranger(self, token: str) -> None:
        """Whether another user's process lives is not known; what it holds is left to it."""
        if token in self._strangers:
            return
        self._strangers.add(token)
        text = (
            f"a process of another user has used {self.place}, and its lock {token} cannot be opened: if "
            "it was killed, what it held is free again as soon as that user consumes from the file; let only "
            "one user use it"
        )
        self.notices.append(Notice(STRANGER, logging.WARNING, text, {"holder": token}))

    def _claim(self, store: Store, owner: Owner, room: int) -> list[Row]:
        """The next messages, held by us; none if the file cannot be written now."""
        if self._stall.left(time.monotonic()):
            return []
        with self._trying():
            if not self._proven:
                store.reserve(self._room)
                self._proven = True
                self._stall.passed(time.monotonic())
            if self._is_due(store):
                with store.writing():
                    rows = store.claim(self._queue, owner.token, self._now(), room)
                self._next = 0
                return rows
        return []

    def _is_due(self, store: Store) -> bool:
        """Whether there is something to claim; asks the file only if that may have changed."""
        now = self._now()
        with store.reading():
            version = store.data_version()
            if version != self._seen or (self._next is not None and self._next <= now):
                self._seen, self._next = version, store.next_available(self._queue)
        return self._next is not None and self._next <= now

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _pause(self) -> float:
        """How long to sleep before the next check."""
        if not self._next:
            return LOOK
        return min(LOOK, max(0.0, self._next / 1000 - self._clock()))

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
            names_trace=names_trace,
        )

    def _how_to_publish(self) -> str:
        where, queue = shlex.quote(f"local:{self.place}"), shlex.quote(self._name)
        return f"publish a message first: chronicle publish --url {where} --queue {queue} FILE…"
