"""A Redis stream, consumed in a group, as the engine sees it.

Rule 1: a delivery belongs to its claim, not to a connection: the pending list outlives every connection, so a
        verdict that comes after a reconnect is as good as before. A claim ends when the entry is settled,
        given back, or taken over by somebody else (entries.py).
Rule 2: a turn at full load is one round trip: acknowledgements and the next read travel together (intake.py,
        acks.py). What waits for a new entry waits on a second connection.
Rule 3 (S4): the delivery count that Redis keeps is the number of tries. A clean stop puts it back to what it
        was for everything that was not handled: no try is burnt.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Exhausted
from chronicle.core.policy import OnExhausted, Policy, decide
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import BrokerError, BrokerRefused, ConnectionLost
from chronicle.transports.redis import scripts, states
from chronicle.transports.redis.acks import Acks
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.answers import OOM, refusal, word_of
from chronicle.transports.redis.choices import choices_of
from chronicle.transports.redis.connection import ANSWER_TIMEOUT, Answer, Wire
from chronicle.transports.redis.depth import Depth
from chronicle.transports.redis.dialogue import Dialogue, ignore
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.entries import NAME, Claim, restored
from chronicle.transports.redis.intake import DELIVERIES, GROUP_MADE, Intake
from chronicle.transports.redis.keys import Keys, check_slot
from chronicle.transports.redis.poller import Poller
from chronicle.transports.redis.states import EVERYDAY, REDIS, Redis, RedisEvent
from chronicle.transports.redis.topology import make_group
from chronicle.transports.redis.upkeep import ALIVE, LEASE, Upkeep
from chronicle.transports.redis.verdicts import Verdicts
from chronicle.transports.seam import Closing, Connector, Promises, never
from chronicle.transports.tls import tls_context
from chronicle.transports.waker import Waker

CLOSE_TIMEOUT: Final = 2.0  # seconds that a clean close waits for the last answers
LAST_WORDS: Final = 0.5  # seconds that any other waits: what was trimmed is put on the stream again
BATCH: Final = 500  # entries that one script gives back
FREE: Final = (
    30 * 86_400_000
)  # milliseconds; idle for longer than anybody's claim-idle: free for whoever looks
LEASE_SHOWS: Final = 3.0  # seconds after which the lease of a dead consumer tells
NAMES: Final = 10_000  # consumers with one tag on one machine


class StreamTransport:
    """One stream, read by one consumer of a group."""

    away = 0.0

    def __init__(self, connector: Connector) -> None:
        choices = choices_of(connector.choices)
        assert choices.group is not None
        self._address = address_of(connector.url, connector.extras)
        check_slot(self._address, connector.queue)
        self.promises = Promises(
            NAME,
            delays=True,
            counts=True,
            late_results=True,
            backoff=Backoff(0.2, 5.0),
            labels={"mode": choices.mode.value, "stream": connector.queue},
        )
        self.machine = Machine(REDIS, Redis.CLOSED, everyday=EVERYDAY)
        self.notices: deque[Notice] = deque()
        self._context = tls_context(connector.tls) if self._address.tls else None
        self._connector = connector
        self._keys = Keys(connector.queue, choices.group)
        self._group = choices.group
        self._start = choices.start
        self._held: dict[bytes, Claim] = {}
        self._aside: dict[bytes, Claim] = {}  # nobody can carry their verdicts out: they stay pending
        self._acks = Acks(connector.queue, self._group, self.notices)
        self._intake = Intake(
            self._keys,
            self._group,
            choices,
            connector.prefetch,
            self._held,
            self._acks,
            self.notices,
            self._known,
        )
        self._upkeep = Upkeep(self._keys, self._held, self._aside, self.notices, self._compare_pending)
        self._verdicts = Verdicts(
            self._keys,
            self._group,
            connector.tag,
            self._held,
            self._aside,
            self._acks,
            self.notices,
            again=self._try_again,
            waits=self._upkeep.waits_until,
        )
        self._buried: list[Settlement] = []  # decided here, because nobody should try them again
        self._token = secrets.token_hex(8)
        self._consumer = ""  # our name in the group
        self._waker = Waker()
        self._poller: Poller | None = None
        self._work: Dialogue | None = None
        self._bell: Wire | None = None
        self._opened_at = 0.0
        self._was_there = False  # the stream: if it is gone later, that is no mistake of the operator
        self._stopped = False
        self.unconfirmed = 0

    @property
    def place(self) -> str:
        return self._address.place

    @property
    def depth(self) -> int | None:
        return self._upkeep.waiting

    # --- opening ------------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        return states.opened(self.machine, stopping, lambda: self._open(stopping), self._let_go)

    def _open(self, stopping: Callable[[], bool]) -> int | None:
        wire = connect(
            self._address, self._keys.stream, self._context, name=self._connector.tag, stopping=stopping
        )
        self._work, self._poller = Dialogue(wire), Poller(self._waker, wire)
        # What was added to a stream that we have read before must not be passed over.
        start = "0" if self._was_there else self._start
        declaring = self._connector.declare is not None or self._was_there
        made = make_group(wire, self._keys, start, create_stream=declaring, stopping=stopping)
        if made and self._was_there:
            text = f"the stream {self._keys.stream!r} or its group was deleted, and was created again"
            self.notices.append(Notice(GROUP_MADE, logging.ERROR, text))
        new_name = self._take_name(wire, stopping)
        self._bell = connect(
            self._address, self._keys.stream, self._context, name=self._connector.tag, stopping=stopping
        )
        self._poller.watch(self._bell)
        depth = self._depth(wire, stopping)
        now = monotonic()
        self._stopped = False
        self._acks.send_again()
        self._acks.send(self._work)  # before anything is read
        self._upkeep.begin(self._work, self._consumer, self._token, now)
        self._intake.begin(self._work, self._bell, self._consumer, new_name=new_name, now=now)
        self._verdicts.begin(self._work, self._consumer)
        # The engine sends its own verdicts again; it has never heard of these.
        self._buried = [settlement for settlement in self._buried if settlement.fate is Fate.OPEN]
        self._verdicts.take_in(self._buried, connected=True)
        if depth is not None:
            self._upkeep.compare(depth)
        self._was_there = True
        self._opened_at = now
        return depth.waits if depth is not None else None

    def _take_name(self, wire: Wire, stopping: Callable[[], bool]) -> bool:
        """Find a name that no living process uses (S5); whether it is a new one."""
        if self._consumer and not self._upkeep.name_taken:
            lease = self._keys.lease(self._consumer)
            answers = wire.ask(
                ("SET", lease, self._token, "NX", "PX", LEASE), ("GET", lease), stopping=stopping
            )
            if answers[0] == b"OK" or answers[1] in (self._token.encode(), None):
                return False  # ours; without memory the server may not have kept the lease
        base = self._connector.tag
        for number in range(1, NAMES):
            name = base if number == 1 else f"{base}.{number}"
            question = ("SET", self._keys.lease(name), self._token, "NX", "PX", LEASE)
            (answer,) = wire.ask(question, stopping=stopping)
            if isinstance(answer, Exception) and word_of(answer) == OOM:
                answer, name = b"", f"{base}.{self._token}"  # no room for a lease: a name nobody else has
            if wire.value(answer) is not None:
                self._consumer = name
                return True
        raise BrokerRefused(f"all names from {base} on are in use", "choose another --tag")

    def _depth(
        self, wire: Wire, stopping: Callable[[], bool], timeout: float = ANSWER_TIMEOUT
    ) -> Depth | None:
        keys = (self._keys.stream, self._keys.waiting)
        arguments = (self._group, self._consumer, self._keys.lease(), ALIVE)
        question = ("EVAL", scripts.DEPTH, len(keys), *keys, *arguments)
        (answer,) = wire.ask(question, stopping=stopping, timeout=timeout)
        if isinstance(answer, Exception):
            if refused := refusal(answer, self._address):
                raise refused
            return None
        return Depth(*answer)

    # --- working ------------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        work, bell, poller = self._work, self._bell, self._poller
        if work is None or bell is None or poller is None:
            raise ConnectionLost("not connected")
        intake, ready = self._intake, self._intake.ready
        now = monotonic()
        self._upkeep.plan(now, taking=not self._stopped)
        self._verdicts.plan(now)
        if not self._stopped:
            states.receiving(self.machine)
            if self._upkeep.is_sure(now):
                intake.plan(room, now)
        poller.flush(work.wire)
        if not (ready and room):
            seen = poller.sleep(work.wire, now + min(timeout, self._upkeep.next_chore(now)))
            if work.wire.fileno() in seen:
                work.serve()
            else:
                work.wire.look()
            intake.serve_bell(came=bell.fileno() in seen)
        if intake.worn:
            self._bury()
        if self._verdicts.has_news:
            self._waker.wake()  # the engine learns of it with the next turn, which nothing else brings about
        if not ready and not self._stopped and self._upkeep.is_sure(now):
            # An answer without entries, or the bell: the next question goes out now. Nothing else would bring
            # the next turn about before its time.
            intake.plan(room, monotonic())
            poller.flush(work.wire)
        if not ready or not room or self._stopped:
            return ()
        states.received(self.machine)
        return [ready.popleft() for _ in range(min(room, len(ready)))]

    def _bury(self) -> None:
        """Dead-letter what has killed its consumers too often."""
        worn, self._intake.worn = self._intake.worn, []
        policy = Policy(on_exhausted=OnExhausted.DEAD_LETTER)
        for delivery in worn:
            outcome = Exhausted(delivery.counted, DELIVERIES)
            self._buried.append(Settlement(delivery, outcome, decide(outcome, delivery, policy)))
            self._verdicts.take_in(self._buried[-1:], connected=True)

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        verdicts, dialogue = self._verdicts, self._work
        if work:
            verdicts.take_in(work, connected=dialogue is not None)
            states.settled(self.machine)
        if dialogue is not None:
            self._acks.send(dialogue)
        return verdicts.finals()

    def _try_again(self, claim: Claim) -> None:
        """A requeue without a delay: the next try is ours, unless we have stopped; then it is anybody's."""
        if self._stopped:
            self._verdicts.left.append(claim.again(0.0))
        else:
            self._intake.again(claim)

    def is_empty(self) -> bool | None:
        if self._work is None:
            return None
        if self._intake.ready or self._intake.rereading:
            return False
        self._work.finish(CLOSE_TIMEOUT)
        # Between two questions only: an answer to an earlier one must not be taken for this one's.
        depth = None if self._work.wire.waiting else self._depth(self._work.wire, never, CLOSE_TIMEOUT)
        if depth is None:
            return None
        self._compare_pending(depth.own)
        if depth.pending > depth.own + depth.orphaned and monotonic() - self._opened_at < LEASE_SHOWS:
            return False  # others hold something: whether they live shows in a moment
        left = depth.unread or depth.delayed or depth.orphaned
        return not (left or self._intake.ready or self._intake.rereading)

    def _compare_pending(self, number: int) -> None:
        """What is pending under our name must be known here; otherwise it is read again."""
        if number > len(self._known()):
            self._intake.reread()

    def _known(self) -> set[bytes]:
        """What may be pending under our name: in work, decided and not confirmed, or not handled here."""
        return {*self._held, *self._aside, *self._acks, *self._verdicts.pending()}

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
        self._verdicts.hurry()
        if self._work is None:
            return
        self._intake.stop()
        self._upkeep.look()  # for the last time
        self._work.finish(min(patience, CLOSE_TIMEOUT))
        self._give_up_ready()

    def _give_up_ready(self) -> None:
        """What came and was not handed out goes back: nobody has begun with it."""
        for delivery in self._intake.ready:
            claim: Claim = delivery.handle
            if self._held.pop(claim.id, None) is not None:
                self._verdicts.left.append(claim)
        self._intake.ready.clear()

    def close(self, why: Closing = Closing.SETTLED) -> None:
        if why is not Closing.LOST:
            self._say_goodbye(CLOSE_TIMEOUT if why is Closing.SETTLED else LAST_WORDS)
        self._let_go()
        if why is not Closing.LOST:
            self._forget()
        states.end(self.machine, why)

    def _say_goodbye(self, patience: float) -> None:
        """Give back what was not settled, as it came, and let go of our name."""
        work = self._work
        if work is None:
            return
        with suppress(BrokerError):
            self._acks.send(work)
            self._give_up_ready()
            left = [*self._held.values(), *self._verdicts.left, *self._aside.values()]
            for start in range(0, len(left), BATCH):
                self._give_back(work, left[start : start + BATCH])
            keys_ = (self._keys.stream, self._keys.lease(self._consumer))
            work.script(ignore, scripts.LEAVE, keys_, self._group, self._consumer, self._token, failed=ignore)
            work.finish(patience)

    def _give_back(self, work: Dialogue, batch: list[Claim]) -> None:
        keys, mine = (self._keys.stream,), (self._group, self._consumer)
        claims = {claim.id: claim for claim in batch}

        def restore(trimmed: Answer) -> None:
            for claim in (claims[id_] for id_ in trimmed):
                fields = restored(claim, self._keys.stream, self._group)
                work.script(ignore, scripts.RESTORE, keys, self._group, claim.id, *fields, failed=ignore)

        proofs = [part for claim in batch for part in (claim.id, claim.count, max(0, claim.count - 1))]
        work.script(restore, scripts.GIVE_BACK, keys, *mine, FREE, *proofs, failed=ignore)

    def _forget(self) -> None:
        """Nothing is held any more: the group has it."""
        self.unconfirmed += self._acks.give_up()
        self._intake.ready.clear()
        self._verdicts.left.clear()
        self._aside.clear()
        self._buried.clear()
        self._held.clear()
        self._consumer = ""

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
