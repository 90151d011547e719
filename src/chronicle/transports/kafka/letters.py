"""Dead letters on their way to TOPIC.dlq.

Rule 1 (K5): a letter is done when the brokers have confirmed it, and only then its offset counts. Until then
        the record is in work, and holds its partition's watermark.
Rule 2: key and value are the record's own bytes, its headers come first and unchanged; ours replace those of
        an earlier death.
Rule 3: what the brokers do not take now is sent again, with growing pauses; nothing is given up. The brokers
        measure a batch, not a record: what is too large is sent again alone, then without our headers. What
        is too large even so can never be kept: that ends the run, because committing past it would lose it.
        A producer that cannot go on is replaced. At most one line a second tells of all that.
Rule 4: only the client's thread produces and takes reports; the pump puts letters in and takes them out.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from itertools import count
from time import monotonic, time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chronicle.core.backoff import Backoff
from chronicle.core.deadletters.death import (
    ATTEMPTS,
    CONSUMER,
    FIRST,
    LAST,
    OFFSET,
    PARTITION,
    QUEUE,
    REASON,
    failed,
)
from chronicle.core.notice import Notice
from chronicle.core.settlement import Settlement
from chronicle.errors import CannotKeep
from chronicle.transports.kafka.assignment import Record
from chronicle.transports.kafka.problems import error_in
from chronicle.transports.kafka.records import encoded, headers_of

OURS: Final = frozenset((REASON, ATTEMPTS, QUEUE, CONSUMER, FIRST, LAST, PARTITION, OFFSET))
REFUSED: Final = "kafka.dead_letter_refused"
HEADERS_LOST: Final = "kafka.dead_letter_headers_lost"
AGAIN: Final = Backoff(0.5, 30.0)
PAUSE: Final = 1.0  # seconds between two lines about letters that were not taken
REPORTS: Final = 1.0  # seconds for the last reports of a producer that cannot go on
TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


class Form(IntEnum):
    """How a letter is sent; each is tried when the one before was too large."""

    TOGETHER = 0  # with others
    ALONE = 1
    BARE = 2  # alone, and without our headers: as it came, it fitted into the topic it is from


class Letters:
    """Produces the dead letters of one topic."""

    def __init__(
        self,
        make_producer: Callable[[bool], Producer],
        topic: str,
        consumer: str,
        notices: deque[Notice],
        confirmed: Callable[[Settlement], None],
    ) -> None:
        self.problem: CannotKeep | None = None
        self._make_producer = make_producer
        self._producers: dict[bool, Producer] = {}  # by whether letters go alone
        self._topic = topic
        self._consumer = consumer
        self._notices = notices
        self._confirmed = confirmed
        self._wanted: deque[tuple[Settlement, Form]] = deque()
        self._later: list[tuple[float, int, Settlement, Form]] = []
        self._order = count()
        self._tries: dict[Settlement, int] = {}
        self._broken = False  # a producer cannot go on
        self._tell_at = 0.0
        self._given = 0  # the pump counts these …
        self._kept = 0  # … and the client's thread those

    def prepare(self) -> None:
        """Make a producer, before the first letter needs one: SettingError for a setting it does not take."""
        self._producers[False] = self._make_producer(False)

    def send(self, settlement: Settlement) -> None:
        """Dead-letter this one. From the pump."""
        self._given += 1
        self._wanted.append((settlement, Form.TOGETHER))

    def __len__(self) -> int:
        """How many are not confirmed."""
        return self._given - self._kept

    def serve(self) -> None:
        """Produce what is due, and take in the reports. From the client's thread; never waits."""
        now = monotonic()
        while self._later and self._later[0][0] <= now:
            _, _, settlement, form = heapq.heappop(self._later)
            self._wanted.append((settlement, form))
        while self._wanted:
            settlement, form = self._wanted[0]
            if not self._produce(settlement, form):
                break
            self._wanted.popleft()
        for producer in self._producers.values():
            try:
                producer.poll(0)
            except KafkaException as error:  # of the client, and not of a letter
                self._broken |= error_in(error).fatal()
        if self._broken:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """A producer cannot go on: what it has not sent, as its reports will say, is sent by a new one."""
        self._broken = False
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            producer.purge()
            with suppress(KafkaException):
                producer.flush(REPORTS)

    def close(self) -> None:
        """Nothing more is sent; what was not confirmed is still in the topic it came from."""
        for producer in self._producers.values():
            producer.purge()
        self._producers.clear()

    def _produce(self, settlement: Settlement, form: Form) -> bool:
        """Hand it to the client library; False when that is full."""
        record: Record = settlement.delivery.handle
        if record.part.over:  # somebody else has it by now, and decides
            self._done(settlement)
            return True
        alone = form is not Form.TOGETHER
        if (producer := self._producers.get(alone)) is None:
            producer = self._producers[alone] = self._make_producer(alone)
        message = record.message

        def reported(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self._done(settlement)
            else:
                self._refused(settlement, form, error)

        headers = headers_of(message)
        if headers is None:
            headers = []
            self._tell_headers_lost(record)
        if form is not Form.BARE:
            headers = [(name, value) for name, value in headers if name not in OURS]
            headers += encoded(self._death(settlement, record))
        try:
            producer.produce(
                self._topic,
                value=message.value(),
                key=message.key(),
                headers=[*headers],
                on_delivery=reported,
            )
        except BufferError:
            return False
        except KafkaException as error:
            self._refused(settlement, form, error_in(error))
        return True

    def _tell_headers_lost(self, record: Record) -> None:
        text = (
            f"offset {record.offset} of partition {record.part.number} is dead-lettered without its headers: "
            "one has a name that is not UTF-8, and the client cannot read them"
        )
        self._notices.append(Notice(HEADERS_LOST, logging.WARNING, text, {"partition": record.part.number}))

    def _death(self, settlement: Settlement, record: Record) -> Mapping[str, Any]:
        delivery, reason = settlement.delivery, settlement.verdict.reason
        if delivery.envelope.fault:
            reason += f"; {delivery.envelope.fault}, so this copy has none of them"
        told = failed(delivery, reason, self._consumer, int(time() * 1000))
        return {**told, PARTITION: record.part.number, OFFSET: record.offset}

    def _done(self, settlement: Settlement) -> None:
        self._kept += 1
        self._tries.pop(settlement, None)
        self._confirmed(settlement)

    def _refused(self, settlement: Settlement, form: Form, error: KafkaError) -> None:
        record: Record = settlement.delivery.handle
        where = f"offset {record.offset} of partition {record.part.number}"
        if error.code() in TOO_LARGE:
            if form is not Form.BARE:
                self._wanted.append((settlement, Form(form + 1)))
                return
            self.problem = CannotKeep(
                f"{where} must be dead-lettered, and {self._topic!r} does not take a record of that size; "
                f"raise its max.message.bytes, then start again"
            )
            return
        self._broken |= error.fatal()
        tries = self._tries[settlement] = self._tries.get(settlement, 0) + 1
        delay = AGAIN.ceiling(tries)
        heapq.heappush(self._later, (monotonic() + delay, next(self._order), settlement, form))
        if (now := monotonic()) >= self._tell_at:
            self._tell_at = now + PAUSE
            text = f"{self._topic!r} did not take {where}: {error.str()}; trying again in {delay:g}s"
            facts = {"partition": record.part.number, "waiting": len(self)}
            self._notices.append(Notice(REFUSED, logging.ERROR, text, facts, settlement.delivery))
