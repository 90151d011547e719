"""Looking at a stream: XRANGE only, so a look changes nothing at all.

Rule 1: what waits is what its group has not acknowledged: pending entries first, then unread ones, both in
        the order of their ids. A stream without that group, such as most dead letters, or read with
        --no-group, waits as a whole.
Rule 2: what is added after the opening is not read.
Rule 3: an entry is moved to another stream, or removed, by one script: it is never in both, and never in
        neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.errors import BrokerRefused, ConnectionLost, SettingError
from chronicle.transports.redis import scripts
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.answers import OOM, is_gone, word_of
from chronicle.transports.redis.choices import choices_of
from chronicle.transports.redis.connection import Answer, Wire
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.entries import NAME, Claim, delivery_of, moved
from chronicle.transports.redis.keys import USUAL_GROUP, Keys, check_slot
from chronicle.transports.redis.options import Mode
from chronicle.transports.redis.topology import no_stream
from chronicle.transports.seam import Closing, Connector, Outgoing, Reading
from chronicle.transports.tls import tls_context
from chronicle.transports.waker import Waker

BEGINNING: Final = "0-0"
BATCH: Final = 1000  # entries that are asked for at a time, at most …
FIRST: Final = 20  # … at first, when it is not known how large they are …
BATCH_BYTES: Final = 8 * 1024 * 1024  # … and as long as they are not larger than this together


class Read(NamedTuple):
    """The handle of what was read: by which opening, and the entry."""

    epoch: int
    claim: Claim


class StreamReader:
    """Reads one stream without a trace."""

    moves = True

    def __init__(self, connector: Connector, reading: Reading) -> None:  # noqa: ARG002 - a look costs nothing
        choices = choices_of(connector.choices)
        if choices.mode is Mode.PUBSUB:
            raise SettingError(
                "pub/sub keeps no messages: there is nothing to look at",
                "use a stream, or consume the channels",
            )
        self._address = address_of(connector.url, connector.extras)
        check_slot(self._address, connector.queue)
        self.transport = NAME
        self.notices: deque[Notice] = deque()
        self.present = 0
        self._context = tls_context(connector.tls) if self._address.tls else None
        self._connector = connector
        self._keys = Keys(connector.queue, choices.group or USUAL_GROUP)
        self._wanted_group = choices.group
        self._fields = choices.fields
        self._waker = Waker()
        self._wire: Wire | None = None
        self._epoch = 0
        self._group = ""  # empty: the whole stream waits
        self._pending = ""  # read those after this id; empty: done
        self._unread = BEGINNING  # then those after this id …
        self._newest = BEGINNING  # … up to this one
        self._done = True
        self._at_once = FIRST

    @property
    def place(self) -> str:
        return self._address.place

    def open(self, stopping: Callable[[], bool]) -> None:
        self.close(Closing.LOST)
        if stopping():
            return
        self._epoch += 1
        stream = self._keys.stream
        self._wire = wire = connect(
            self._address, stream, self._context, name=self._connector.tag, stopping=stopping
        )
        kind, newest, length = wire.ask(
            ("TYPE", stream), ("EVAL", scripts.NEWEST, 1, stream), ("XLEN", stream), stopping=stopping
        )
        if wire.value(kind) == b"none":
            raise no_stream(wire, stream)
        self._newest, self.present = wire.value(newest).decode(), wire.value(length)
        self._group, self._pending, self._unread, self._done = "", "", BEGINNING, False
        self._at_once = FIRST
        group = self._group_of(wire, stopping)
        if group is not None:
            self._group = self._wanted_group or ""
            self._pending, self._unread = BEGINNING, group["last-delivered-id"].decode()
            self.present = self._waiting(wire, group["pending"], stopping)

    def _group_of(self, wire: Wire, stopping: Callable[[], bool]) -> dict[str, Any] | None:
        """What Redis says of the group, if there is one."""
        if self._wanted_group is None:
            return None
        (answer,) = wire.ask(("XINFO", "GROUPS", self._keys.stream), stopping=stopping)
        for group in wire.value(answer):
            facts = {name.decode(): value for name, value in zip(group[::2], group[1::2], strict=True)}
            if facts["name"] == self._wanted_group.encode():
                return facts
        return None

    def _waiting(self, wire: Wire, pending: int, stopping: Callable[[], bool]) -> int:
        """How many wait, at most: Redis does not always know how many are unread."""
        keys = (self._keys.stream, self._keys.waiting)
        depth = ("EVAL", scripts.DEPTH, len(keys), *keys, self._group, "", self._keys.lease(), 0)
        unread = wire.value(wire.ask(depth, stopping=stopping)[0])[0]
        return pending + (unread if unread >= 0 else self.present)

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:  # noqa: ARG002 - no waiting
        if self._done or self._wire is None:
            return None
        room = min(room, self._at_once)
        batch: list[Delivery] | None = []
        while self._pending and not batch:
            batch = self._read_pending(self._wire, room)
        batch = batch or self._read_unread(self._wire, room)
        if batch:
            size = sum(len(delivery.body) for delivery in batch) // len(batch) + 1
            self._at_once = max(1, min(BATCH, BATCH_BYTES // size, 2 * self._at_once))
        return batch

    def _read_pending(self, wire: Wire, room: int) -> list[Delivery]:
        stream = self._keys.stream
        question = ("XPENDING", stream, self._group, f"({self._pending}", "+", room)
        (answer,) = wire.ask(question)
        if isinstance(answer, Exception) and is_gone(answer):
            answer = []
        ids = [entry[0] for entry in wire.value(answer)]
        if not ids:
            self._pending = ""
            return []
        self._pending = ids[-1].decode()
        found = wire.ask(*(("XRANGE", stream, id_, id_) for id_ in ids))
        counts = {entry[0]: entry[3] for entry in answer}
        return [self._delivery(entry, counts[entry[0]]) for answer in found for entry in wire.value(answer)]

    def _read_unread(self, wire: Wire, room: int) -> list[Delivery] | None:
        question = ("XRANGE", self._keys.stream, f"({self._unread}", self._newest, "COUNT", room)
        entries = wire.value(wire.ask(question)[0])
        if not entries:
            self._done = True
            return None
        self._unread = entries[-1][0].decode()
        return [self._delivery(entry, 1) for entry in entries]

    def _delivery(self, entry: Answer, count: int) -> Delivery:
        id_, pairs = entry
        claim = Claim(id_, max(1, count), pairs, 0.0)
        delivery = delivery_of(claim, self._keys.stream, self._fields)
        delivery.handle = Read(self._epoch, claim)
        delivery.lease = None
        return delivery

    def remove(self, batch: Sequence[Delivery]) -> None:
        if not batch:
            return
        wire, ids = self._opened(batch), [delivery.handle.claim.id for delivery in batch]
        questions: list[tuple[Any, ...]] = [("XDEL", self._keys.stream, *ids)]
        if self._group:
            # First, so that nothing is pending whose entry is gone; both or neither.
            questions = [
                ("MULTI",), ("XACK", self._keys.stream, self._group, *ids), questions[0], ("EXEC",)
            ]  # fmt: skip
        for answer in wire.ask(*questions):
            wire.value(answer)

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        if not batch:
            return ()
        check_slot(self._address, self._keys.stream, queue)
        wire = self._opened([delivery for delivery, _ in batch])
        keys = (self._keys.stream, queue)
        questions: list[tuple[Any, ...]] = []
        for delivery, message in batch:
            claim: Claim = delivery.handle.claim
            fields = moved(delivery, claim, message, self._fields)
            questions.append(("EVAL", scripts.MOVE, len(keys), *keys, self._group, claim.id, *fields))
        if queue != self._keys.stream:
            (kind,) = map(wire.value, wire.ask(("TYPE", queue)))
            if kind == b"none":
                raise no_stream(wire, queue)
        answers = wire.ask(*questions)
        done = [pair[0] for pair, answer in zip(batch, answers, strict=True) if answer == 1]
        for answer in answers:
            if isinstance(answer, Exception) and word_of(answer) == OOM and not done:
                raise BrokerRefused(f"{self.place}: the server is out of memory (maxmemory)", "give it more")
            wire.value(answer)
        return done

    def serve(self, timeout: float = 0.0) -> None:
        """A connection to Redis needs no care; a broken one shows itself at the next question."""
        self._waker.wait(timeout)

    def stop(self, patience: float) -> None:  # noqa: ARG002 - nothing is under way between two calls
        self._done = True

    def close(self, why: Closing = Closing.SETTLED) -> None:  # noqa: ARG002 - it holds nothing
        self._epoch += 1
        self._done = True
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def wake(self) -> None:
        self._waker.wake()

    def _opened(self, batch: Sequence[Delivery]) -> Wire:
        if self._wire is None or any(delivery.handle.epoch != self._epoch for delivery in batch):
            raise ConnectionLost(f"{self.place}: the connection it was read on is closed")
        return self._wire
