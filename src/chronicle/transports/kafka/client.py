"""The client and the thread that polls it.

Rule 1: only this thread talks to the client, so its callbacks all run here, and a wait in one of them (for
        syncers whose partition is taken away, for a commit) never holds up the pump, on whose thread those
        syncers may run. A question to a client that is being polled elsewhere may never be answered.
Rule 2 (K3): it polls at least every second, whatever the syncers do. It reads ahead, so that it rarely needs
        Python's lock; when there has been no room for a second it pauses the partitions and goes on polling.
Rule 3: the client reconnects by itself. An outage is told; only a fatal error ends the run (K7). The client
        does not always say that no broker is left: a last one that stops in good order may be forgotten
        before it is gone. So where one cannot be reached, they are asked.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from chronicle.core.notice import Notice
from chronicle.core.words import many
from chronicle.errors import BrokerRefused, ChronicleError, ClientFailed
from chronicle.transports.kafka.assignment import Assignment, Came, Part
from chronicle.transports.kafka.commits import Commits
from chronicle.transports.kafka.depth import DepthGauge
from chronicle.transports.kafka.identity import Identity
from chronicle.transports.kafka.letters import Letters
from chronicle.transports.kafka.membership import Membership
from chronicle.transports.kafka.pauses import Pauses
from chronicle.transports.kafka.problems import error_in
from chronicle.transports.kafka.reports import BACK, DELETED, HELD_BACK, POLL_FAILED, Reports
from chronicle.transports.kafka.states import KafkaEvent

TURN: Final = 0.05  # seconds that a poll waits; a commit or a letter waits no longer for its turn
SHORT: Final = 0.005  # … while letters wait for their confirmation
READ_AHEAD: Final = 500  # records
READ_AHEAD_BYTES: Final = 4_000_000
PATIENCE: Final = 1.0  # seconds without room before partitions are paused
PROBE: Final = 1.0  # seconds between two questions whether the brokers are back …
DOUBT: Final = 5.0  # … and whether any are there, when one cannot be reached

AWAY: Final = (KafkaError._ALL_BROKERS_DOWN,)
PASSING: Final = (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT)


class Client:
    """One member of a group, polled by a thread of its own."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        identity: Identity,
        assignment: Assignment,
        letters: Letters,
        notices: deque[Notice],
        wake: Callable[[], None],
        explain: Callable[[KafkaError], ChronicleError],
        make: Callable[[dict[str, Any]], Consumer],
    ) -> None:
        self.ready: deque[Came] = deque()
        self.failed: ChronicleError | None = None
        self.away_since: float | None = None
        self.gauge = DepthGauge(topic)
        self.reports = reports = Reports(notices, wake)
        self._topic = topic
        self._identity = identity
        self._assignment = assignment
        self._letters = letters
        self._explain = explain
        self._commits = commits = Commits(topic, assignment, reports)
        self._pauses = pauses = Pauses(topic)
        self._membership = Membership(
            config, assignment, commits, pauses, letters, reports, self._trouble, identity.hurry, self._look
        )
        self.consumer = make({**config, "error_cb": self._on_error, "on_commit": commits.answered})
        self._thread = threading.Thread(target=self._run, name="kafka-client", daemon=True)
        self._stopped = False  # nothing new is taken in
        self._capacity = READ_AHEAD
        self._space = threading.Event()
        self._waits_for_space = False
        self._full_since: float | None = None
        self._astray: set[Part] = set()  # they are to be read from their beginning, and are not yet
        self._probed = 0.0
        self._doubts = False  # whether there are brokers

    # --- for the pump -------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group, and poll from now on."""
        self._membership.join(self.consumer, self._topic)
        self._thread.start()

    def taken(self) -> None:
        """Records were taken out of `ready`: there may be room."""
        if self._waits_for_space and len(self.ready) <= self._capacity // 2:
            self._space.set()

    def stop(self) -> None:
        """Take in nothing new; go on polling."""
        self._stopped = True
        self._space.set()

    def close(self, patience: float) -> int:
        """Commit what is settled, leave the group, and end; waits at most so long for the brokers.

        How many settled records the brokers have not confirmed: they may come again.
        """
        parts = self._assignment.parts()
        self._membership.ending = True
        self._space.set()
        if self._thread.ident is None:
            self.consumer.close()
        else:
            self._thread.join(patience)
        return sum(part.settled - part.safe for part in parts)

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._membership.ending and self.failed is None:
                self._turn()
        except KafkaException as error:
            self._fail(error_in(error))
        except Exception as error:  # a callback's, too; nobody else would learn of it
            self.failed = ClientFailed(f"the Kafka client has ended: {type(error).__name__}")
        except:  # noqa: E722 - the client raises what is no exception when it refuses something in a callback
            self.failed = ClientFailed("the Kafka client has ended: it refused what it was asked")
        finally:
            self.reports.wake()
            self._leave()

    def _turn(self) -> None:
        now = monotonic()
        self._letters.serve()
        if self._letters.problem is not None:
            self.failed = self._letters.problem
            return
        self._commits.plan(self.consumer, now)
        held_back = self._hold_back(now) if self._assignment.holds_back else ()
        if self.gauge.wanted:
            self.gauge.look(self.consumer, self._assignment, now)
        if self.away_since is not None or self._doubts:
            self._probe(now)
        elif (changed := self._identity.changed(now)) is not None:
            self._looked(changed)
        if self._astray:
            self._seek()
        room = 0 if self._stopped else self._capacity - len(self.ready)
        if room > 0:
            self._full_since = None
            self._pauses.resume(self.consumer, but=held_back)
        elif not self._is_paused(now):
            self._wait_for_space()
            return
        if (message := self.consumer.poll(SHORT if self._letters else TURN)) is not None:
            self._take(message, room)

    def _is_paused(self, now: float) -> bool:
        """Whether everything is paused: after a second without room, or because this consumer stops."""
        if self._full_since is None:
            self._full_since = now
        if not self._stopped and now - self._full_since < PATIENCE:
            return False
        self._pauses.pause(self.consumer, self._assignment.numbers())
        return True

    def _wait_for_space(self) -> None:
        """There is no room; the client keeps what it has fetched."""
        self._waits_for_space = True
        if len(self.ready) > self._capacity // 2:  # otherwise it was taken just now
            self._space.wait(SHORT if self._letters else TURN)
        self._waits_for_space = False
        self._space.clear()

    def _take(self, first: Message, room: int) -> None:
        """Take in what the client has: records, words about a partition's end, and about trouble."""
        batch = [first, *(self.consumer.consume(room - 1, timeout=0) if room > 1 else ())]
        largest = 1
        for message in batch:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._trouble(error, message)
                continue
            part = self._assignment.part(message.partition())
            if part is None or part in self._astray:
                continue
            offset = message.offset() or 0
            if part.newest is not None and offset > part.newest + 1:
                self._look_for_gap(part, part.newest + 1)
            elif part.newest is not None and offset <= part.newest and self._is_anew(part, message):
                part = self._begin_anew(part)
            if error is not None:
                part.newest = max(offset - 1, -1 if part.newest is None else part.newest)
            else:
                part.newest = offset
                largest = max(largest, len(message))
            self.ready.append((part, message))
        self._capacity = max(1, min(READ_AHEAD, READ_AHEAD_BYTES // largest))
        if self.ready:
            self.reports.wake()

    def _look_for_gap(self, part: Part, expected: int) -> None:
        """Offsets are missing: was something deleted before it was read? Gaps as such are no news (K2)."""
        gone = self._start(part) - expected
        if gone > 0:
            text = f"partition {part.number}: up to {many(gone, 'record was', 'records were')} deleted unread"
            self.reports.say(DELETED, logging.ERROR, text, partition=part.number, count=gone)

    def _start(self, part: Part) -> int:
        """Where the partition began when something was last fetched from it."""
        bounds = self.consumer.get_watermark_offsets(TopicPartition(self._topic, part.number), cached=True)
        return bounds[0] if bounds else 0

    def _is_anew(self, part: Part, message: Message) -> bool:
        """Whether offsets that go back are those of another log.

        An end that is further back is that of a log without records. Otherwise a new leader does not know yet
        how far the last one had come, and goes over the markers of transactions again.
        """
        return message.error() is None or (message.offset() or 0) <= self._start(part)

    def _looked(self, changed: bool) -> None:
        """It is the same topic as before, or it was made anew, and nothing else tells: all of it is read."""
        parts = self._assignment.parts()
        before = [part for part in parts if changed and not part.anew]
        for part in parts:
            part.anew = False
        for part in before:
            fresh = self._assignment.renew(part)
            fresh.anew = False
            self._astray.add(fresh)
        self._seek()
        if before:
            text = "the topic was deleted and made anew: it is read from its beginning"
            self.reports.say(DELETED, logging.ERROR, text)

    def _seek(self) -> None:
        """Go to the beginning where the client reads on in the middle; it may not be able to just now."""
        for part in [*self._astray]:
            if self._assignment.part(part.number) is part:
                try:
                    self.consumer.seek(TopicPartition(self._topic, part.number, OFFSET_BEGINNING))
                except KafkaException:
                    continue
            self._astray.discard(part)

    def _look(self) -> bool:
        """Look before a last commit whether the topic was made anew; nobody could tell later.

        Without an answer, what was read is taken to be of the topic that is there.
        """
        answers = self.failed is None and self.away_since is None and self._assignment.numbers()
        if answers and self._identity.look():
            self._looked(True)
            return True
        return False

    def _begin_anew(self, part: Part) -> Part:
        """Offsets went back, and nobody asked for that: the topic was made anew, or truncated."""
        text = f"partition {part.number} begins again at a lower offset: the topic was deleted or truncated"
        self.reports.say(DELETED, logging.ERROR, text, partition=part.number)
        return self._assignment.renew(part)

    def _hold_back(self, now: float) -> list[int]:
        """Partitions whose oldest record has been in work for very long bring nothing new."""
        waiting = self._assignment.held_back()
        for part, since in waiting:
            age = round(now - since)
            text = f"partition {part.number} waits: its oldest record has been in work for {age} s"
            facts = {"partition": part.number, "age_s": age}
            self.reports.trouble(HELD_BACK, logging.WARNING, text, part.number, **facts)
        numbers = [part.number for part, _ in waiting]
        self._pauses.pause(self.consumer, numbers)
        return numbers

    # --- trouble ------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        """The client's word about itself."""
        if error.fatal():
            self._fail(error)
        elif error.code() in AWAY:
            if self._thread.ident is not None:  # before it has joined, whoever asks about topics says it
                self._no_broker()
        elif error.code() in PASSING:
            if self.away_since is None and not self._doubts:
                self._doubts, self._probed = True, monotonic()
        else:
            self._trouble(error)

    def _no_broker(self) -> None:
        if self.away_since is None:
            self.away_since = self._probed = monotonic()
            self.reports.happened.append(KafkaEvent.POLL_ERR)
        self.reports.trouble(POLL_FAILED, logging.WARNING, "no broker can be reached; trying again")

    def _probe(self, now: float) -> None:
        """No broker could be reached, or one could not: is that still so?"""
        if now - self._probed < (DOUBT if self.away_since is None else PROBE):
            return
        self._probed, self._doubts = now, False
        try:
            self.consumer.list_topics(self._topic, timeout=PROBE)
        except KafkaException:
            self._no_broker()
            return
        if self.away_since is not None:
            self.away_since = None
            self.reports.over(POLL_FAILED)
            self.reports.happened.append(KafkaEvent.RECOVERED)
            self.reports.say(BACK, logging.INFO, "the brokers are back")

    def _trouble(self, error: KafkaError, message: Message | None = None) -> None:
        """A poll failed; the next may not."""
        if error.fatal() or error.code() == KafkaError._FATAL:  # as a record, it comes without the flag
            self._fail(error)
            return
        problem = self._explain(error)
        refused = isinstance(problem, BrokerRefused)
        if refused and not self._assignment.known:
            self.failed = problem  # it has never worked, and no try would change that
            return
        if message is not None and (offset := message.offset()) is not None and offset >= 0:
            number = message.partition()
            text = f"partition {number} cannot be read at offset {offset}: {problem}"
            facts = {"partition": number, "offset": offset}
            self.reports.trouble(POLL_FAILED, logging.ERROR, text, (error.code(), number), **facts)
            return
        level = logging.ERROR if refused else logging.WARNING
        self.reports.trouble(POLL_FAILED, level, str(problem), error.code())

    def _fail(self, error: KafkaError) -> None:
        problem = self._explain(error)
        self.failed = problem if isinstance(problem, ClientFailed) else ClientFailed(str(problem))
        self.reports.wake()

    # --- the end ------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Commit, and leave the group. In here, so that nobody waits for brokers that are away."""
        self._membership.ending = True
        with suppress(Exception):  # what it could not commit is counted, and told by whoever closes
            self._commits.finish(self.consumer)
            if self._look():
                self._commits.finish(self.consumer)
        with suppress(Exception):
            self.consumer.close()
        self._letters.close()
        self._identity.close()
