"""Looking at a topic, with an assigned consumer: it joins no group and commits nothing, and leaves no trace.

Rule 1: what waits is what the group has not settled: from its committed offset on, without what the metadata
        beside it names (ledger.py), to the end at the opening. With --from it begins there, whatever the
        group has done, and nothing can be removed.
Rule 2: a topic keeps its records. To remove one is to settle it for the group: before each commit what the
        group has committed is read again and united with, so that settled records only become more. Brokers
        forget what a group without members committed long ago; so the first removal commits all of it again.
Rule 3: a partition ends where its last record is, or where the broker says so: the last offsets may be
        markers of transactions.
Rule 4: the order within a partition is kept. Between partitions the older record comes first, as far as
        they can be compared with few in memory.
Rule 5: publishing to another topic and removing here are two steps, in this order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from time import monotonic
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.errors import BrokerRefused, BrokerUnreachable, ChronicleError, ConnectionLost, SettingError
from chronicle.transports.kafka import removals
from chronicle.transports.kafka.address import address_of, consumer_config
from chronicle.transports.kafka.admin import Admin
from chronicle.transports.kafka.chatter import Chatter
from chronicle.transports.kafka.choices import choices_of
from chronicle.transports.kafka.group_offsets import GroupOffsets
from chronicle.transports.kafka.ledger import Ledger
from chronicle.transports.kafka.metadata import Position
from chronicle.transports.kafka.offsets import Bounds, bounds_of, offsets_at
from chronicle.transports.kafka.problems import Witness, built, error_in
from chronicle.transports.kafka.records import NAME, delivery_of
from chronicle.transports.seam import Closing, Connector, Outgoing, Reading
from chronicle.transports.waker import Waker

TURN: Final = 0.1  # seconds between two looks whether somebody woke us
SILENCE: Final = 30.0  # seconds of waiting without a word …
DOWN: Final = 10.0  # … and when no broker can be reached
BATCH: Final = 1000  # records that are taken from the client at a time, at most …
FIRST: Final = 20  # … at first, when it is not known how large they are …
BATCH_BYTES: Final = 4 * 1024 * 1024  # … and as long as they are not larger than this together
AHEAD: Final = 5000  # records that wait here for older ones of other partitions, at most …
AHEAD_BYTES: Final = 16 * 1024 * 1024  # … and no larger than this together
ROOMS: Final = (4000, 2000, 0)  # characters for the metadata: a broker takes 4095, or what it is told
WAIT_FOR_END: Final = 100  # milliseconds
ANSWER: Final = 10.0  # seconds


class Read(NamedTuple):
    """The handle of what was read: by which opening, and where it is."""

    epoch: int
    partition: int
    offset: int


class Part:
    """One partition that is read."""

    def __init__(self, bounds: Bounds, begin: int, position: Position | None) -> None:
        self.number = bounds.partition
        self.begin = begin
        self.end = bounds.end
        self.over = begin >= self.end  # nothing more comes
        self.waiting: deque[Message] = deque()
        self.known = position  # what the group had committed when we last knew
        self.ledger = Ledger(*position) if position else Ledger(begin)
        self.removed: list[int] = []


class KafkaReader:
    """Reads what waits in one topic."""

    moves = False  # topics take and forget records separately

    def __init__(self, connector: Connector, reading: Reading) -> None:  # noqa: ARG002 - a look costs nothing
        self._address = address_of(connector.url, connector.extras)
        self._choices = choices_of(connector.choices, connector.queue)
        self.transport = NAME
        self.notices: deque[Notice] = deque()
        self.present = 0
        self._connector = connector
        self._waker = Waker()
        self._witness = Witness(self._address)
        self._consumer: Consumer | None = None
        self._group: GroupOffsets | None = None
        self._epoch = 0
        self._told_how_long = False
        self._reset(())

    def _reset(self, parts: Iterable[Part]) -> None:
        self._parts = {part.number: part for part in parts}
        self._missing = {part.number for part in self._parts.values() if not part.over}  # wait for a record
        self._heads: list[tuple[int, int]] = []  # by timestamp, the partitions of which a record waits
        self._ahead = 0  # records that wait …
        self._ahead_bytes = 0  # … and their size
        self._came = 0  # were handed out
        self._at_once = FIRST
        self._quiet = 0.0
        self._done = not self._parts
        self._told = False
        self._reminded = False

    @property
    def place(self) -> str:
        return self._address.place

    def open(self, stopping: Callable[[], bool]) -> None:
        self.close(Closing.LOST)
        self._epoch += 1
        try:
            self._open(stopping)
        except BrokerUnreachable:
            if not stopping():
                raise
        if stopping():
            self.close(Closing.LOST)

    def _open(self, stopping: Callable[[], bool]) -> None:
        if stopping():
            return
        topic = self._connector.queue
        self._group = GroupOffsets(self._connector, self._choices.group, self.notices)
        with Admin(self._connector, stopping) as admin:
            parts = self._look(admin, self._group, topic)
        self._witness = Witness(self._address)
        config = consumer_config(self._address, self._connector.tls, self._connector.tag, self._choices.group)
        self._consumer = consumer = built(
            Consumer,
            {"fetch.wait.max.ms": WAIT_FOR_END, **config, "error_cb": self._witness},
            self._address,
            logger=Chatter(self._address, self.notices),
        )
        self.present = sum(waiting for _, waiting in parts)
        self._reset(part for part, _ in parts)
        try:
            consumer.assign(
                [TopicPartition(topic, part.number, part.begin) for part, _ in parts if not part.over]
            )
        except KafkaException as exception:
            raise self._problem(exception) from None

    def _look(self, admin: Admin, group: GroupOffsets, topic: str) -> list[tuple[Part, int]]:
        """The partitions, and how many wait in each, at most."""
        numbers = admin.topic(topic).partitions
        every = bounds_of(admin, topic, numbers, group)
        if self._choices.start is None:
            return [(Part(bounds, bounds.begin, bounds.position), bounds.waiting) for bounds in every]
        begins = offsets_at(admin, topic, numbers, self._choices.start)
        return [
            (Part(bounds, begins[bounds.partition], None), max(0, bounds.end - begins[bounds.partition]))
            for bounds in every
        ]

    def read(self, room: int, timeout: float) -> Sequence[Delivery] | None:
        if self._done or self._consumer is None:
            return None
        until = monotonic() + timeout
        late = False
        while not (batch := self._take(room)):
            if not self._missing:
                self._done = True
                self.present = self._came  # the other offsets were gaps
                return None
            if late or self._waker.wait(0.0):
                return ()
            left = max(0.0, until - monotonic())
            late = left == 0.0
            self._fetch(self._consumer, min(left, TURN))
        return batch

    def _take(self, room: int) -> list[Delivery]:
        """The oldest that are here. One that may be older is waited for, unless too many wait already."""
        batch: list[Delivery] = []
        while self._heads and len(batch) < room:
            if self._missing and self._ahead < AHEAD and self._ahead_bytes < AHEAD_BYTES:
                break
            part = self._parts[heappop(self._heads)[1]]
            message = part.waiting.popleft()
            self._ahead -= 1
            self._ahead_bytes -= len(message)
            if part.waiting:
                self._put_up(part)
            elif not part.over:
                self._missing.add(part.number)
            delivery = delivery_of(message, self._connector.queue)
            delivery.handle = Read(self._epoch, part.number, message.offset() or 0)
            batch.append(delivery)
        self._came += len(batch)
        return batch

    def _put_up(self, part: Part) -> None:
        heappush(self._heads, (part.waiting[0].timestamp()[1], part.number))

    def _fetch(self, consumer: Consumer, timeout: float) -> None:
        """Take in what has come; waits only if there is nothing."""
        began = monotonic()
        try:
            # A `consume` with patience waits until it has all, or its time is over.
            first = consumer.poll(timeout)
            came = [first, *consumer.consume(self._at_once, 0.0)] if first is not None else []
        except KafkaException as exception:
            raise self._lost(self._problem(exception)) from None
        if not came:
            self._quiet += monotonic() - began
            self._check_silence()
            return
        self._quiet, self._witness.down = 0.0, False
        size = sum(map(self._take_in, came)) // len(came) + 1
        self._at_once = max(1, min(BATCH, BATCH_BYTES // size, 2 * self._at_once))

    def _take_in(self, message: Message) -> int:
        """One record, or a word about its partition; its size."""
        error = message.error()
        part = self._parts.get(message.partition() or 0)
        offset = message.offset() or 0
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if not error.retriable():
                raise self._lost(self._witness.problem(error, topic=self._connector.queue))
        elif part is not None and not part.over:
            if error is not None:
                part.ledger.reached(min(offset, part.end))
            elif offset < part.end and part.ledger.deliver(offset):
                part.waiting.append(message)
                self._ahead += 1
                self._ahead_bytes += len(message)
                if len(part.waiting) == 1:
                    self._missing.discard(part.number)
                    self._put_up(part)
            if error is not None or offset + 1 >= part.end:
                self._finish(part)
        return len(message)

    def _finish(self, part: Part) -> None:
        part.over = True
        self._missing.discard(part.number)
        if self._consumer is not None:
            with suppress(KafkaException):  # then it goes on fetching what nobody looks at
                self._consumer.pause([TopicPartition(self._connector.queue, part.number)])

    def _check_silence(self) -> None:
        try:
            self._witness.look()
        except ChronicleError as error:
            raise self._lost(error) from None
        if self._quiet >= (DOWN if self._witness.down else SILENCE):
            raise ConnectionLost(str(self._witness.silence()))

    def remove(self, batch: Sequence[Delivery]) -> None:
        if not batch:
            return
        self._check_epoch(batch)
        if self._choices.start is not None:
            raise SettingError("what was read with --from cannot be removed", "leave --from out")
        going: dict[int, list[int]] = {}
        for delivery in batch:
            going.setdefault(delivery.handle.partition, []).append(delivery.handle.offset)
        group = self._group = self._group or GroupOffsets(self._connector, self._choices.group, self.notices)
        try:
            self._remind(group)
            committed = group.positions(going)
            for number, removed in going.items():
                self._settle(self._parts[number], committed.get(number), removed)
            for room in ROOMS:
                positions = {number: self._position(number, room) for number in going}
                refused = group.commit(positions)
                if refused is None or refused.code() != KafkaError.OFFSET_METADATA_TOO_LARGE:
                    break
        except BrokerUnreachable as error:
            self._group = None
            group.close()  # its answer may still come, and must not be taken for another's
            raise ConnectionLost(str(error)) from None
        if refused is not None:
            raise self._not_removed(refused)
        for number, position in positions.items():
            self._parts[number].known = position
        self._tell_forgotten(positions)
        self._tell_how_long()

    def _remind(self, group: GroupOffsets) -> None:
        """Have the brokers remember, from now on, what is removed already, be it by somebody else."""
        if not self._reminded:
            self._reminded = True
            known = {number: part.known for number, part in self._parts.items() if part.known}
            group.commit(known | group.positions(known))  # if that is refused, so is what comes next

    def _settle(self, part: Part, committed: Position | None, removed: Sequence[int]) -> None:
        if committed is not None and committed != part.known and self._is_within(committed, part):
            part.ledger.unite(*committed)
        for offset in removed:
            part.ledger.settle(offset)
        part.removed += removed

    def _is_within(self, committed: Position, part: Part) -> bool:
        """Whether it is of this log; what lies beyond its end is of a topic that was made anew."""
        return committed.offset <= part.end or committed.offset <= self._end_now(part)

    def _end_now(self, part: Part) -> int:
        where = TopicPartition(self._connector.queue, part.number)
        try:
            bounds = self._consumer.get_watermark_offsets(where, ANSWER) if self._consumer else None
        except KafkaException as exception:
            raise self._lost(self._problem(exception)) from None
        return bounds[1] if bounds else part.end

    def _position(self, number: int, room: int) -> Position:
        ledger = self._parts[number].ledger
        return Position(ledger.watermark or 0, ledger.metadata(room))

    def _not_removed(self, error: KafkaError) -> ChronicleError:
        group = self._choices.group
        if error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION):
            return BrokerRefused(
                f"{self.place}: nothing can be removed while somebody consumes in the group {group!r}",
                "stop that consumer, or let it consume in another --group",
            )
        problem = self._witness.problem(error, topic=self._connector.queue, group=group)
        return self._lost(problem)

    def _pass_markers(self, group: GroupOffsets) -> None:
        """Where all was removed, commit the very end: markers of transactions are no messages that wait."""
        passed = {
            part.number: Position(part.end)
            for part in self._parts.values()
            if part.removed and part.known != (part.end, "") and part.ledger.watermark == part.end
        }
        if passed:
            with suppress(ChronicleError):  # it only makes the next count exact
                group.commit(passed)

    def _tell_forgotten(self, positions: Mapping[int, Position]) -> None:
        """Say once if what was removed comes again, because there is no more room to remember it."""
        removed = [(position, self._parts[number].removed) for number, position in positions.items()]
        if not self._told and (forgotten := removals.forgotten(removed)):
            self._told = True
            self.notices.append(removals.no_room(self._connector.queue, forgotten))

    def _tell_how_long(self) -> None:
        """Say once for how long the brokers remember what was removed, if they do not hide it."""
        if not self._told_how_long:
            self._told_how_long = True
            if (minutes := removals.kept(self._connector)) is not None:
                self.notices.append(removals.expires(self._connector.queue, minutes))

    def move(self, batch: Sequence[tuple[Delivery, Outgoing]], queue: str) -> Sequence[Delivery]:
        del batch, queue
        raise AssertionError("it does not move: publish, and then remove")

    def serve(self, timeout: float = 0.0) -> None:
        """The client cares for its connections itself; lost ones show themselves at the next question."""
        self._waker.wait(timeout)

    def stop(self, patience: float) -> None:  # noqa: ARG002 - nothing is under way between two calls
        self._done = True
        if self._consumer is not None:
            with suppress(KafkaException):
                self._consumer.unassign()

    def close(self, why: Closing = Closing.SETTLED) -> None:
        if why is Closing.SETTLED and self._group is not None:
            self._pass_markers(self._group)
        self._epoch += 1
        self._reset(())
        consumer, self._consumer = self._consumer, None
        group, self._group = self._group, None
        if consumer is not None:
            with suppress(KafkaException, RuntimeError):
                consumer.close()
        if group is not None:
            group.close()

    def wake(self) -> None:
        self._waker.wake()

    def _check_epoch(self, batch: Sequence[Delivery]) -> None:
        if any(delivery.handle.epoch != self._epoch for delivery in batch):
            raise ConnectionLost(f"{self.place}: the connection it was read on is closed")

    def _problem(self, exception: KafkaException) -> ChronicleError:
        error = error_in(exception)
        return self._witness.problem(error, topic=self._connector.queue, group=self._choices.group)

    def _lost(self, problem: ChronicleError) -> ChronicleError:
        """Once it was open, a broker that cannot be reached is a connection that is lost."""
        return ConnectionLost(str(problem)) if isinstance(problem, BrokerUnreachable) else problem
