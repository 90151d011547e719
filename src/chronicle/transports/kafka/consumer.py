"""A Kafka topic, consumed in a group, as the engine sees it.

Rule 1 (K2, D-5): a record is settled when it is in the ledger of its partition, and what is committed is the
        watermark: nothing unfinished lies below it. What is settled beyond travels in the commit's metadata.
Rule 2: the pump never waits for a broker here. A thread of its own polls the client (client.py); it brings
        records, takes partitions away, commits and confirms, and rings.
Rule 3: a log cannot take a record back: another try is made from memory (transports/lanes.py). Only verdicts
        that end a record come here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer

from chronicle.core.backoff import Backoff
from chronicle.core.delivery import Delivery
from chronicle.core.machine import Machine
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.words import many
from chronicle.errors import ChronicleError, ConnectionLost
from chronicle.transports.kafka import states
from chronicle.transports.kafka.address import address_of, consumer_config, producer_config
from chronicle.transports.kafka.admin import Admin
from chronicle.transports.kafka.assignment import SPAN, Assignment, Record
from chronicle.transports.kafka.chatter import Chatter
from chronicle.transports.kafka.choices import choices_of, dead_letter_topic
from chronicle.transports.kafka.client import Client
from chronicle.transports.kafka.group_offsets import GroupOffsets
from chronicle.transports.kafka.identity import Identity
from chronicle.transports.kafka.letters import Letters
from chronicle.transports.kafka.offsets import LATEST, bounds_of, place_group
from chronicle.transports.kafka.problems import built, explained
from chronicle.transports.kafka.records import NAME
from chronicle.transports.kafka.reports import COMMIT_FAILED
from chronicle.transports.kafka.states import EVERYDAY, KAFKA, Kafka, KafkaEvent
from chronicle.transports.kafka.topology import check_topics, make_topics
from chronicle.transports.seam import Closing, Connector, Promises, never
from chronicle.transports.waker import Waker

LOOK: Final = 2.0  # seconds that a look at the ends of the partitions may take
JOIN: Final = 10.0  # seconds that opening waits for partitions; a group that is being shared out takes longer
CLOSE: Final = {Closing.SETTLED: 5.0, Closing.DEADLINE: 1.0, Closing.LOST: 1.0}  # seconds for the last commit
# Records that wait here for their key or their next try, and leave room for others: more than one partition
# brings beyond its oldest record, so that no single key keeps other partitions from going on.
PARKED: Final = 2 * SPAN
VANISHED: Final = 3000  # milliseconds after which a dead-letter topic that is gone is told
LARGEST: Final = 1_000_000_000  # bytes; the brokers say what is too large


class KafkaTransport:
    """One topic, read by one member of a group."""

    def __init__(self, connector: Connector) -> None:
        self._choices = choices_of(connector.choices, connector.queue)
        self._address = address_of(connector.url, connector.extras)
        self.promises = Promises(
            NAME,
            requeues=False,
            parks=PARKED,
            backoff=Backoff(0.05, 1.0),
            labels={"topic": connector.queue, "group": self._choices.group},
        )
        self.machine = Machine(KAFKA, Kafka.CLOSED, everyday=EVERYDAY)
        self.notices: deque[Notice] = deque()
        self._chatter = Chatter(self._address, self.notices)  # one for all tries: it counts lines a second
        self._connector = connector
        self._waker = Waker()
        self._assignment = Assignment(connector.queue)
        self._letters: Letters | None = None
        self._client: Client | None = None
        self._admin: Admin | None = None
        self._confirmed: deque[Settlement] = deque()
        self._stopped = False
        self.unconfirmed = 0
        self._at_start: int | None = None  # what waited for the group then

    @property
    def place(self) -> str:
        return self._address.place

    @property
    def away(self) -> float:
        since = self._client.away_since if self._client is not None else None
        return monotonic() - since if since is not None else 0.0

    @property
    def depth(self) -> int | None:
        client = self._client
        if client is None:
            return self._at_start
        client.gauge.wanted = True
        return self._at_start if client.gauge.known is None else client.gauge.known

    # --- opening ------------------------------------------------------------------------------------

    def open(self, stopping: Callable[[], bool]) -> int | None:
        return states.opened(self.machine, stopping, lambda: self._open(stopping), self._let_go)

    def _open(self, stopping: Callable[[], bool]) -> int | None:
        connector, topic = self._connector, self._connector.queue
        if connector.declare is not None:
            make_topics(connector, stopping)
        chatter = self._chatter
        self._stopped = False
        self._confirmed.clear()
        self._assignment = Assignment(topic)
        self._letters = Letters(
            lambda alone: self._producer(alone, chatter),
            dead_letter_topic(topic),
            connector.tag,
            self.notices,
            self._was_confirmed,
        )
        self._letters.prepare()
        found = check_topics(connector, stopping, self.notices)
        config = consumer_config(self._address, connector.tls, connector.tag, self._choices.group)
        self._client = client = Client(
            config,
            topic,
            Identity(connector, found.identity),
            self._assignment,
            self._letters,
            self.notices,
            self._waker.wake,
            self._explain,
            lambda settings: built(Consumer, settings, self._address, logger=chatter),
        )
        group, numbers = self._choices.group, found.partitions
        offsets = GroupOffsets(connector, group, self.notices)
        with Admin(connector, stopping) as admin, closing(offsets):
            place_group(admin, topic, numbers, offsets, self._choices.start)
            depth = sum(one.waiting for one in bounds_of(admin, topic, numbers, offsets))
        self.machine.fire(KafkaEvent.BUILD_OK)
        client.start()
        self._join(client, stopping)
        self._at_start = depth
        return depth

    def _join(self, client: Client, stopping: Callable[[], bool]) -> None:
        """Wait for the first partitions, or for the reason why there are none."""
        until = monotonic() + JOIN
        while not self._assignment.known and not stopping() and monotonic() < until:
            self._waker.wait(0.1)
            if client.failed is not None:
                raise client.failed

    def _producer(self, alone: bool, chatter: Chatter) -> Producer:
        config = producer_config(self._address, self._connector.tls, self._connector.tag)
        config |= {"message.max.bytes": LARGEST, "topic.metadata.propagation.max.ms": VANISHED}
        config |= {"batch.num.messages": 1} if alone else {}
        return built(Producer, config, self._address, logger=chatter)

    def _explain(self, error: KafkaError) -> ChronicleError:
        return explained(error, self._address, topic=self._connector.queue, group=self._choices.group)

    # --- working ------------------------------------------------------------------------------------

    def receive(self, room: int, timeout: float) -> Sequence[Delivery]:
        client = self._client
        if client is None:
            raise ConnectionLost("not connected")
        if timeout > 0 and not (client.ready and room):
            self._waker.wait(timeout)
        else:
            self._waker.clear()
        while client.reports.happened:
            states.happened(self.machine, client.reports.happened.popleft())
        if client.failed is not None:
            raise client.failed
        if self._stopped or not room:
            return ()
        states.looking(self.machine)
        if self._assignment.holds_back:
            self._assignment.let_go_on(client.ready)
        batch = self._assignment.hand_out(client.ready, room) if client.ready else ()
        client.taken()
        if batch:
            states.received(self.machine)
        else:
            states.nothing_came(self.machine)
        return batch

    def settle(self, work: Sequence[Settlement]) -> Sequence[Settlement]:
        assignment = self._assignment
        final: list[Settlement] = []
        for settlement in work:
            record: Record = settlement.delivery.handle
            action = settlement.verdict.action
            if action is Action.ACK or action is Action.DROP:
                settlement.fate = Fate.DONE if assignment.settle(record) else Fate.STALE
            elif action is Action.LEAVE:
                settlement.fate = Fate.DONE if assignment.leave(record) else Fate.STALE
            elif action is Action.DEAD_LETTER and self._letters is not None and not record.part.over:
                self._letters.send(settlement)
                continue
            else:
                settlement.fate = Fate.STALE
            final.append(settlement)
        if work:
            states.settled(self.machine)
        while self._confirmed:
            final.append(self._confirmed.popleft())
        return final

    def _was_confirmed(self, settlement: Settlement) -> None:
        """The brokers have this dead letter. On the client's thread."""
        settled = self._assignment.settle(settlement.delivery.handle)
        settlement.fate = Fate.DONE if settled else Fate.STALE
        self._confirmed.append(settlement)
        self._waker.wake()

    def is_empty(self) -> bool | None:
        client, assignment = self._client, self._assignment
        if client is None or not assignment.known:
            return None
        assignment.pass_ends(client.ready)
        if client.ready:
            return False
        if self._admin is None:  # few runs ask
            self._admin = Admin(self._connector, never, LOOK)
        admin, topic, numbers = self._admin, self._connector.queue, assignment.numbers()
        try:
            if numbers:
                return assignment.has_seen(admin.offsets(topic, numbers, LATEST)) and not client.ready
            # Others have them, or they are on their way to us.
            with closing(GroupOffsets(self._connector, self._choices.group, self.notices)) as group:
                every = bounds_of(admin, topic, admin.topic(topic).partitions, group)
            return all(one.begin >= one.end for one in every)
        except ChronicleError:
            return None

    def wake(self) -> None:
        self._waker.wake()

    def fileno(self) -> int | None:
        return self._waker.fileno()

    # --- ending -------------------------------------------------------------------------------------

    def stop(self, patience: float) -> None:  # noqa: ARG002 - nobody has to answer
        self.machine.fire(KafkaEvent.STOP)
        self._stopped = True
        if self._client is not None:
            self._client.stop()
            self._client.ready.clear()

    def close(self, why: Closing = Closing.SETTLED) -> None:
        self._let_go(CLOSE[why])
        states.end(self.machine, why)

    def _let_go(self, patience: float = CLOSE[Closing.LOST]) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        client, self._client = self._client, None
        if client is not None:
            self.unconfirmed = client.close(patience)
            if self.unconfirmed:
                records = many(self.unconfirmed, "settled record")
                text = f"the brokers did not confirm {records}, which may come again"
                self.notices.append(Notice(COMMIT_FAILED, logging.ERROR, text))
