"""The client and the thread that polls it.

Rule 1: only this thread talks to the client, so its callbacks all run here, and a wait in one of them (for
        syncers whose partition is taken away, for a commit) never holds up the pump, on whose thread those
        syncers may run. A question to a client that is being polled elsewhere may never be answered.
Rule 2 (K3): it polls at least every second, whatever the syncers do. It reads ahead, so that it rarely needs
        Python's lock; when there has been no room for a second it pauses the partitions and goes on polling.
        Not sooner: a pause throws away what the client has fetched.
Rule 3 (K4): a partition that is taken away is closed for new work; what has begun may finish for a bounded
        time; then its position is committed, and it is over. Of one that was lost nothing is committed.
Rule 4: a commit that fails is tried once more at once, then told, and tried again with the next ones
        (R-002-34). The metadata never keeps an offset from being committed (K2).
Rule 5: the client reconnects by itself. An outage is told; only a fatal error ends the run (K7).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from chronicle.core.notice import Notice
from chronicle.errors import BrokerRefused, ChronicleError, ClientFailed
from chronicle.transports.kafka.assignment import Assignment, Came, Commit, Part
from chronicle.transports.kafka.letters import Letters
from chronicle.transports.kafka.metadata import ROOM
from chronicle.transports.kafka.offsets import ANSWER_TIMEOUT
from chronicle.transports.kafka.problems import error_in
from chronicle.transports.kafka.states import KafkaEvent

TURN: Final = (
    0.05  # seconds that a poll waits, and so the longest that a commit or a letter waits for its turn
)
SHORT: Final = 0.005  # … while letters wait for their confirmation
READ_AHEAD: Final = 500  # records
READ_AHEAD_BYTES: Final = 4_000_000
PATIENCE: Final = 1.0  # seconds without room before partitions are paused
COMMIT_EVERY: Final = 0.2  # seconds
COMMIT_ANSWER: Final = 30.0  # seconds after which the answer to a commit is no longer expected
AGAIN: Final = 1.0  # seconds between commits that fail, and between questions whether the brokers are back
GRACE: Final = 20.0  # seconds that syncers may still take when their partition is taken away
REMIND: Final = 60.0  # seconds between two words about the same trouble

AWAY: Final = (KafkaError._ALL_BROKERS_DOWN,)
PASSING: Final = (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT, *AWAY)
NO_METADATA: Final = 0

POLL_FAILED: Final = "consumer_poll_failed"
COMMIT_FAILED: Final = "offset_commit_failed"
BACK: Final = "brokers_back"
ASSIGNED: Final = "partitions_assigned"
REVOKED: Final = "partitions_revoked"
LOST: Final = "partitions_lost"
DELETED: Final = "records_deleted"
HELD_BACK: Final = "partition_held_back"


class Client:
    """One member of a group, polled by a thread of its own."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        assignment: Assignment,
        letters: Letters,
        notices: deque[Notice],
        wake: Callable[[], None],
        explain: Callable[[KafkaError], ChronicleError],
        make: Callable[[dict[str, Any]], Consumer],
    ) -> None:
        self.ready: deque[Came] = deque()
        self.happened: deque[KafkaEvent] = deque()  # for the machine, which is the pump's
        self.failed: ChronicleError | None = None
        self.away_since: float | None = None
        self._topic = topic
        self._assignment = assignment
        self._letters = letters
        self._notices = notices
        self._wake = wake
        self._explain = explain
        self._incremental = _is_incremental(config)
        self._grace = min(GRACE, float(config.get("max.poll.interval.ms", 300_000)) / 2000)
        self.consumer = make({**config, "error_cb": self._on_error, "on_commit": self._on_commit})
        self._thread = threading.Thread(target=self._run, name="kafka-client", daemon=True)
        self._ending = False
        self._stopped = False  # nothing new is taken in
        self._capacity = READ_AHEAD
        self._space = threading.Event()
        self._waits_for_space = False
        self._full_since: float | None = None
        self._paused: set[int] = set()
        self._told: dict[str, float] = {}  # what was told, and when
        self._metadata_room = ROOM
        self._commit_due = 0.0
        self._committing: list[Commit] = []
        self._commit_asked = 0.0
        self._commit_failures = 0
        self._probed = 0.0

    # --- for the pump -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group, and poll from now on."""
        self.consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread.start()

    def taken(self) -> None:
        """Records were taken out of `ready`: there may be room."""
        if self._waits_for_space and len(self.ready) <= self._capacity // 2:
            self._space.set()

    def stop(self) -> None:
        """Take in nothing new; go on polling."""
        self._stopped = True
        self._space.set()

    def close(self, patience: float) -> None:
        """Commit what is settled, leave the group, and end; waits at most so long for the brokers."""
        self._ending = True
        self._space.set()
        if self._thread.is_alive():
            self._thread.join(patience)
        elif self._thread.ident is None:
            self.consumer.close()

    # --- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ending and self.failed is None:
                self._turn()
        except KafkaException as error:
            self._fail(error_in(error))
        except BaseException as error:  # nobody else would learn that it has ended
            self.failed = ClientFailed(f"the Kafka client ended: {type(error).__name__}")
            raise
        finally:
            self._wake()
            self._leave()

    def _turn(self) -> None:
        now = monotonic()
        self._letters.serve()
        if self._letters.problem is not None:
            self.failed = self._letters.problem
            return
        self._commit(now)
        self._look_after(now)
        room = 0 if self._stopped else self._capacity - len(self.ready)
        if room > 0:
            self._full_since = None
            self._resume()
        elif not self._pauses(now):
            self._wait_for_space()
            return
        if (message := self.consumer.poll(SHORT if self._letters else TURN)) is not None:
            self._take(message, room)

    def _pauses(self, now: float) -> bool:
        """Whether everything is paused: after a second without room, or because this consumer stops."""
        if self._full_since is None:
            self._full_since = now
        if not self._stopped and now - self._full_since < PATIENCE:
            return False
        self._pause(self._assignment.numbers())
        return True

    def _wait_for_space(self) -> None:
        """There is no room; the client keeps what it has fetched."""
        self._waits_for_space = True
        self._space.wait(SHORT if self._letters else TURN)
        self._waits_for_space = False
        self._space.clear()

    def _take(self, first: Message, room: int) -> None:
        batch = [first, *(self.consumer.consume(room - 1, timeout=0) if room > 1 else ())]
        was_empty = not self.ready
        largest = 1
        for message in batch:
            if (error := message.error()) is not None and error.code() != KafkaError._PARTITION_EOF:
                self._trouble(error)
                continue
            part = self._assignment.part(message.partition())
            if part is None:
                continue
            offset = message.offset() or 0
            if part.newest is None:
                self._look_for_gap(part, offset)
            if error is None:
                if part.newest is not None and offset <= part.newest:
                    part = self._begin_anew(part)
                part.newest = offset
                largest = max(largest, len(message))
            self.ready.append(Came(part, message))
        self._capacity = max(1, min(READ_AHEAD, READ_AHEAD_BYTES // largest))
        if was_empty and self.ready:
            self._wake()

    def _look_for_gap(self, part: Part, first: int) -> None:
        """The first word of a partition: was something deleted before it was read?"""
        committed = part.committed
        if committed is None:
            return
        part.newest = committed.offset - 1
        if first > committed.offset:
            bounds = self.consumer.get_watermark_offsets(
                TopicPartition(self._topic, part.number), cached=True
            )
            gone = (bounds[0] if bounds else 0) - committed.offset
            if gone > 0:
                text = f"partition {part.number}: up to {gone} records were deleted before they were read"
                facts = {"partition": part.number, "count": gone}
                self._notices.append(Notice(DELETED, logging.ERROR, text, facts))

    def _begin_anew(self, part: Part) -> Part:
        """Offsets went back, and nobody asked for that: the topic was made anew, or truncated."""
        text = f"partition {part.number} begins again at a lower offset: the topic was deleted or truncated"
        self._notices.append(Notice(DELETED, logging.ERROR, text, {"partition": part.number}))
        return self._assignment.renew(part)

    # --- pausing ----------------------------------------------------------------------------------------

    def _pause(self, numbers: Sequence[int]) -> None:
        new = [number for number in numbers if number not in self._paused]
        if new:
            with suppress(KafkaException):
                self.consumer.pause([TopicPartition(self._topic, number) for number in new])
            self._paused.update(new)

    def _resume(self) -> None:
        """Let everything flow again but the partitions that are held back."""
        if not self._paused:
            return
        held_back = {part.number for part, _ in self._assignment.held_back()}
        if numbers := self._paused - held_back:
            with suppress(KafkaException):
                self.consumer.resume([TopicPartition(self._topic, number) for number in numbers])
            self._paused &= held_back

    def _look_after(self, now: float) -> None:
        """Whatever needs a look from time to time."""
        if self._assignment.holds_back:
            self._hold_back(now)
        if self.away_since is not None and now - self._probed >= AGAIN:
            self._probed = now
            with suppress(KafkaException):
                self.consumer.list_topics(self._topic, timeout=AGAIN)
                self.away_since = None
                self._told.pop(POLL_FAILED, None)
                self._tell(BACK, logging.INFO, "the brokers are back", always=True)
                self._happens(KafkaEvent.RECOVERED)

    def _hold_back(self, now: float) -> None:
        """Partitions whose oldest record has been in work for very long bring nothing new."""
        for part, since in self._assignment.held_back():
            self._pause((part.number,))
            age = now - since
            self._tell(
                HELD_BACK,
                logging.WARNING,
                f"partition {part.number} waits: its oldest record has been in work for {age:.0f} s",
                key=f"{HELD_BACK} {part.number}",
                partition=part.number,
                age_s=round(age),
            )

    # --- committing -------------------------------------------------------------------------------------

    def _commit(self, now: float) -> None:
        if self._committing and now - self._commit_asked < COMMIT_ANSWER:
            return
        if now < self._commit_due:
            return
        commits = self._assignment.commits(room=self._metadata_room)
        if not commits:
            return
        self._committing, self._commit_asked, self._commit_due = commits, now, now + COMMIT_EVERY
        try:
            self.consumer.commit(offsets=self._offsets(commits), asynchronous=True)
        except KafkaException as error:
            self._commit_failed(error_in(error), now)

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        commits, self._committing = self._committing, []
        errors = {one.partition: one.error for one in partitions or ()}
        worst = error
        for part, position in commits:
            failed = error or errors.get(part.number)
            if failed is None:
                part.committed = position
            worst = worst or failed
        if worst is not None:
            self._commit_failed(worst, monotonic())
            return
        self._commit_failures = 0
        self._told.pop(COMMIT_FAILED, None)
        self._happens(KafkaEvent.COMMIT_OK)

    def _commit_failed(self, error: KafkaError, now: float) -> None:
        self._committing = []
        self._commit_failures += 1
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._metadata_room = NO_METADATA
            return
        if self._commit_failures == 1:
            return  # once more, with the next turn
        self._commit_due = now + AGAIN
        self._happens(KafkaEvent.COMMIT_ERR)
        text = f"offsets could not be committed: {error.str()}; trying again"
        self._tell(COMMIT_FAILED, logging.WARNING, text, tries=self._commit_failures)

    def _commit_now(self, parts: Sequence[Part]) -> None:
        """Commit these and wait for the answer; a failure is told, and the records come again."""
        for room in (self._metadata_room, NO_METADATA):
            commits = self._assignment.commits(parts, room)
            if not commits:
                return
            try:
                answers = self.consumer.commit(offsets=self._offsets(commits), asynchronous=False) or ()
                error = next((one.error for one in answers if one.error is not None), None)
            except KafkaException as failure:
                error = error_in(failure)
            if error is None:
                for part, position in commits:
                    part.committed = position
                return
        why = error.str() if error is not None else "no answer"
        text = f"settled offsets could not be committed, so records come again: {why}"
        numbers = [part.number for part, _ in commits]
        self._notices.append(Notice(COMMIT_FAILED, logging.ERROR, text, {"partitions": numbers}))

    def _offsets(self, commits: Sequence[Commit]) -> list[TopicPartition]:
        return [
            TopicPartition(self._topic, part.number, position.offset, metadata=position.metadata)
            for part, position in commits
        ]

    # --- the group's word, inside a poll --------------------------------------------------------------------

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        placed = [self._placed(one) for one in self._committed(partitions)]
        self._assignment.add(part for part, _ in placed)
        starts = [start for _, start in placed]
        if self._incremental:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        numbers = [start.partition for start in starts]
        self._paused.difference_update(numbers)
        if numbers:
            # Pauses outlive a rebalance inside the client; here, each assignment begins without one.
            with suppress(KafkaException):
                consumer.resume([TopicPartition(self._topic, number) for number in numbers])
        self._tell_partitions(ASSIGNED, logging.INFO, "assigned", numbers)
        self._wake()

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The same with what is committed for them."""
        try:
            return self.consumer.committed(partitions, timeout=ANSWER_TIMEOUT)
        except KafkaException as error:
            self._trouble(error_in(error))
            # The client asks again where to begin; only what is settled beyond that is done once more.
            return [TopicPartition(self._topic, one.partition, OFFSET_STORED) for one in partitions]

    def _placed(self, committed: TopicPartition) -> tuple[Part, TopicPartition]:
        """The partition with its ledger, and where to begin reading it."""
        number = committed.partition
        if committed.error is not None or committed.offset == OFFSET_STORED:
            return Part(number), TopicPartition(self._topic, number, OFFSET_STORED)
        if committed.offset < 0:
            return Part(number), TopicPartition(self._topic, number, OFFSET_BEGINNING)
        part = Part(number, committed.offset, committed.metadata or "")
        return part, TopicPartition(self._topic, number, committed.offset)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        parts = self._assignment.close(numbers)
        self._wake()
        left = 0 if self._ending else self._wait_for_begun(parts)
        self._assignment.remove(parts)
        self._commit_now(parts)
        self._unassign(consumer, partitions)
        if not self._ending:
            text = f"taken away; {left} in work come again elsewhere" if left else "taken away"
            self._tell_partitions(REVOKED, logging.WARNING if left else logging.INFO, text, numbers)

    def _wait_for_begun(self, parts: Sequence[Part]) -> int:
        until = monotonic() + self._grace
        while True:
            self._letters.serve()
            left = self._assignment.wait_for_begun(parts, SHORT if self._letters else TURN)
            if not left or self._ending or self._letters.problem or monotonic() >= until:
                return left

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [one.partition for one in partitions]
        self._assignment.remove(self._assignment.close(numbers))
        self._unassign(consumer, partitions)
        self._tell_partitions(LOST, logging.WARNING, "lost: somebody else may have them already", numbers)
        self._wake()

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._paused.difference_update(one.partition for one in partitions)
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    # --- trouble ----------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        """The client's word about itself."""
        if error.fatal():
            self._fail(error)
        elif error.code() in AWAY:
            if self._thread.ident is None:
                return  # it has not joined: whoever asked the brokers about topics says what is wrong
            if self.away_since is None:
                self.away_since = self._probed = monotonic()
                self._happens(KafkaEvent.POLL_ERR)
            self._tell(POLL_FAILED, logging.WARNING, "no broker can be reached; trying again")
        elif error.code() not in PASSING:
            self._trouble(error)

    def _trouble(self, error: KafkaError) -> None:
        """A poll failed; the next may not."""
        if error.fatal():
            self._fail(error)
            return
        problem = self._explain(error)
        refused = isinstance(problem, BrokerRefused)
        if refused and not self._assignment.known:
            self.failed = problem  # it has never worked, and no try would change that
            return
        level = logging.ERROR if refused else logging.WARNING
        self._tell(POLL_FAILED, level, str(problem), key=f"{POLL_FAILED} {error.code()}")

    def _fail(self, error: KafkaError) -> None:
        self.failed = self._explain(error)
        self._wake()

    def _happens(self, event: KafkaEvent) -> None:
        self.happened.append(event)

    def _tell(
        self, event: str, level: int, text: str, *, key: str = "", always: bool = False, **facts: Any
    ) -> None:
        """One line for the log; the same trouble is told once a minute."""
        now, key = monotonic(), key or event
        if always or now - self._told.get(key, -REMIND) >= REMIND:
            self._told[key] = now
            self._notices.append(Notice(event, level, text, facts))
            self._wake()

    def _tell_partitions(self, event: str, level: int, text: str, numbers: Sequence[int]) -> None:
        if numbers:
            told = ", ".join(map(str, sorted(numbers)))
            word = "partition" if len(numbers) == 1 else "partitions"
            facts = {"partitions": sorted(numbers)}
            self._notices.append(Notice(event, level, f"{word} {told}: {text}", facts))

    # --- the end ----------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Commit, and leave the group. Inside the thread, so that nobody waits for brokers that are away."""
        self._ending = True
        if not isinstance(self.failed, ClientFailed):
            self._commit_now(self._assignment.parts())
        with suppress(KafkaException, RuntimeError):
            self.consumer.close()
        self._letters.close()


def _is_incremental(config: Mapping[str, Any]) -> bool:
    """Whether partitions come and go one by one, and not all at once (KIP-429, KIP-848)."""
    strategy = str(config.get("partition.assignment.strategy", ""))
    return config.get("group.protocol") == "consumer" or "cooperative" in strategy
