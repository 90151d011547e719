"""A Redis stream read without a group, as the engine sees it.

Rule 1: nothing is acknowledged: a verdict moves our own position (position.py), and every such reader gets
        every entry. A delivery outlives its connection, because only this process knows of it.
Rule 2: tries are counted here, in memory: a restart begins again with the first. Another try is made from
        memory too; the stream is shared, and an entry that went back to it would reach everybody. That is
        why `retry:N`, which must survive a restart, is refused.
Rule 3: a stop finishes the tries that are open. What waits for a later try when the process ends is read
        again from the position, and with it what was settled after it (Rule 1 of position.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import BrokerError, BrokerRefused, ConnectionLost, SettingError
from chronicle.transports.redis import scripts, states
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.choices import choices_of
from chronicle.transports.redis.connection import Answer, Wire
from chronicle.transports.redis.cursor_intake import CursorIntake
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.entries import NAME, Claim
from chronicle.transports.redis.keys import Keys, check_slot
from chronicle.transports.redis.letters import Letters
from chronicle.transports.redis.poller import Poller
from chronicle.transports.redis.position import BEGINNING, Position, full, is_id, number
from chronicle.transports.redis.states import EVERYDAY, REDIS, Redis, RedisEvent
from chronicle.transports.redis.topology import check_kinds
from chronicle.transports.seam import Closing, Connector, Promises
from chronicle.transports.tls import tls_context
from chronicle.transports.waker import Waker

CLOSE_TIMEOUT: Final = 2.0  # seconds that a clean close waits for the last answers


class CursorTransport:
    """One stream, read from a position of our own."""

    away = 0.0

    def __init__(self, connector: Connector) -> None:
        choices = choices_of(connector.choices)
        if connector.retry_delays:
            raise SettingError(
                "--on-failure retry:N cannot be honoured with --no-group: an entry that waits for its next "
                "try goes back to the stream, and others read that too",
                "read it in a group, or choose requeue-once or dead-letter",
            )
        self._address = address_of(connector.url, connector.extras)
        self._keys = Keys(connector.queue)
        names = (connector.queue, choices.cursor) if choices.cursor else (connector.queue,)
        check_slot(self._address, *names)
        if choices.cursor in (self._keys.stream, self._keys.dead_letters, self._keys.waiting):
            raise SettingError(
                "--cursor names a key of the queue itself", f"for example --cursor {connector.queue}.cursor"
            )
        self.promises = Promises(
            NAME,
            retries=False,
            counts=True,
            late_results=True,
            backoff=Backoff(0.2, 5.0),
            labels={"mode": choices.mode.value, "stream": connector.queue},
        )
        self.machine = Machine(REDIS, Redis.CLOSED, everyday=EVERYDAY)
        self.notices: deque[Notice] = deque()
        self._context = tls_context(connector.tls) if self._address.tls else None
        self._connector = connector
        self._start = choices.start
        self._held: dict[bytes, Claim] = {}
        self._position = Position(choices.cursor, self.notices)
        self._intake = CursorIntake(
            self._keys, choices, connector.prefetch, self._held, self._position, self.notices
        )
        self._letters = Letters(self._keys, connector.tag, self.notices, self._finish)
        self._final: list[Settlement] = []
        self._soon: list[Settlement] = []  # final with the next call
        self._waker = Waker()
        self._poller: Poller | None = None
        self._work: Dialogue | None = None
        self._bell: Wire | None = None
        self._begun = False  # we know where we are
        self._stopped = False
        self.unconfirmed = 0

    @property
    def place(self) -> str:
        return self._address.place

    @property
    def depth(self) -> int | None:
        return self._intake.waiting

    # --- opening ------------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        return states.opened(self.machine, stopping, lambda: self._open(stopping), self._let_go)

    def _open(self, stopping: Callable[[], bool]) -> int | None:
        stream, tag = self._keys.stream, self._connector.tag
        wire = connect(self._address, stream, self._context, name=tag, stopping=stopping)
        self._work, self._poller = Dialogue(wire), Poller(self._waker, wire)
        declaring = self._connector.declare is not None
        check_kinds(wire, self._keys, stopping, create_stream=declaring or self._begun)
        if declaring and not self._begun:
            wire.value(wire.ask(("EVAL", scripts.MAKE_STREAM, 1, stream), stopping=stopping)[0])
        span = wire.value(wire.ask(("EVAL", scripts.SPAN, 1, stream), stopping=stopping)[0])
        if not self._begun:
            self._begin(wire, span, stopping)
        self._bell = connect(self._address, stream, self._context, name=tag, stopping=stopping)
        self._poller.watch(self._bell)
        self._stopped = False
        self._position.connected()
        self._intake.begin(self._work, self._bell, monotonic())
        self._intake.saw(span)
        self._letters.begin(self._work)
        return self._intake.waiting

    def _begin(self, wire: Wire, span: Answer, stopping: Callable[[], bool]) -> None:
        """Find out where to begin: where the key says, or else where the operator said."""
        kept = self._kept(wire, stopping) if self._position.key else None
        if kept is not None:
            self._position.begin(kept, known=True, kept=True)
        elif self._start == "$":
            # Once: what is added from now on is ours, whatever becomes of the connection.
            self._position.begin(span[0] if span else BEGINNING, known=True, kept=False)
        else:
            self._position.begin(full(self._start), known=False, kept=False)
        self._begun = True

    def _kept(self, wire: Wire, stopping: Callable[[], bool]) -> bytes | None:
        key = self._position.key
        (kind, kept) = wire.ask(("TYPE", key), ("GET", key), stopping=stopping)
        if wire.value(kind) not in (b"string", b"none"):
            raise BrokerRefused(
                f"{self.place}: the key {key!r} is a {kind.decode()}, not a position",
                "choose another --cursor",
            )
        found: bytes | None = wire.value(kept)
        if found is not None and not is_id(found):
            raise BrokerRefused(
                f"{self.place}: the key {key!r} does not hold the id of an entry",
                "choose another --cursor, or delete that key",
            )
        return None if found is None else full(found.decode())

    # --- working ------------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        work, poller = self._work, self._poller
        if work is None or poller is None or self._bell is None:
            raise ConnectionLost("not connected")
        intake, ready = self._intake, self._intake.ready
        now = monotonic()
        self._letters.plan(now)
        self._position.save(work)
        if not self._stopped:
            states.receiving(self.machine)
            intake.plan(room, now)
        poller.flush(work.wire)
        if not (ready and room):
            poller.sleep(work.wire, now + min(timeout, intake.next_chore(now)))
        work.serve()
        intake.serve_bell()
        if not ready and not self._stopped:
            # An answer without entries, or the bell: the next question goes out now. Nothing else would bring
            # the next turn about before its time.
            intake.plan(room, monotonic())
            poller.flush(work.wire)
        if not ready or not room:
            return ()
        states.received(self.machine)
        return [ready.popleft() for _ in range(min(room, len(ready)))]

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        for settlement in work:
            claim: Claim = settlement.delivery.handle
            # Without a connection only what needs no server can be done.
            if self._held.get(claim.id) is not claim or (self._work is None and self._position.key):
                settlement.fate = Fate.STALE
                self._final.append(settlement)
            else:
                self._carry_out(settlement, claim)
        if work:
            states.settled(self.machine)
        final, self._final, self._soon = self._final, self._soon, []
        return final

    def _carry_out(self, settlement: Settlement, claim: Claim) -> None:
        verdict = settlement.verdict
        match verdict.action:
            case Action.ACK | Action.DROP:
                self._finish(settlement)
            case Action.DEAD_LETTER if self._work is None:
                settlement.fate = Fate.STALE
                self._final.append(settlement)
            case Action.DEAD_LETTER:
                self._letters.add(settlement)
            case _:
                self._letters.give_up(claim.id)
                del self._held[claim.id]
                settlement.fate = Fate.DONE
                # When we stop there is no later: the next run reads it again.
                if verdict.action is Action.LEAVE or (self._stopped and verdict.delay):
                    self._final.append(settlement)
                    return
                claim.failed = claim.failed or int(time() * 1000)
                self._intake.again(claim)
                # A drain ends when all is final and nothing comes: the next try must be seen to come.
                (self._soon if self._stopped else self._final).append(settlement)

    def _finish(self, settlement: Settlement) -> None:
        """It is settled: the position may move over it."""
        claim: Claim = settlement.delivery.handle
        del self._held[claim.id]
        self._position.settled(claim.id)
        settlement.fate = Fate.DONE
        self._final.append(settlement)

    def is_empty(self) -> bool | None:
        work = self._work
        if work is None:
            return None
        work.finish(CLOSE_TIMEOUT)
        if self._held or work.wire.waiting:
            return False if self._held else None
        (newest,) = work.wire.ask(("EVAL", scripts.NEWEST, 1, self._keys.stream))
        if isinstance(newest, Exception):
            return None
        return number(newest) <= number(self._position.last)

    def wake(self) -> None:
        self._waker.wake()

    def fileno(self) -> int | None:
        return self._poller.fileno() if self._poller is not None else None

    # --- ending -------------------------------------------------------------------------------------

    def stop(self, patience: float) -> None:  # noqa: ARG002 - the server need not be told
        self.machine.fire(RedisEvent.STOP)
        if not self._stopped:
            self._stopped = True
            self._letters.hurry()
            self._intake.stop()

    def close(self, why: Closing = Closing.SETTLED) -> None:
        if why is not Closing.LOST:
            if self._begun:
                self._save(CLOSE_TIMEOUT if why is Closing.SETTLED else 0.0)
            self._forget()
        self._let_go()
        states.end(self.machine, why)

    def _save(self, patience: float) -> None:
        """See the position confirmed, as far as there is time."""
        if self._work is not None:
            self._position.hurry()
            with suppress(BrokerError):
                for _ in range(2):  # one may be under way, and older
                    self._position.save(self._work)
                    self._work.finish(patience)
        if not self._position.is_saved:
            self._position.tell("the server did not confirm it in time")
            self.unconfirmed += self._position.unsaved

    def _forget(self) -> None:
        """What was not settled is read again, should this be opened again."""
        self._intake.stop()
        self._intake.ready.clear()
        self._held.clear()
        self._letters.clear()
        self._position.rewind()

    def _let_go(self) -> None:
        work, self._work = self._work, None
        bell, self._bell = self._bell, None
        poller, self._poller = self._poller, None
        if work is not None:
            work.wire.close()
        if bell is not None:
            bell.close()
        if poller is not None:
            poller.close()
