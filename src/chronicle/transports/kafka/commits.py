"""Committing what is settled.

Rule 1: what is committed is the ledger's word at that moment, of partitions that are ours: nothing is kept to
        be committed later, so an old position never overwrites a newer one.
Rule 2 (R-002-34): a commit that fails is tried once more at once, then told, and again with the next ones.
Rule 3: while a classic group waits for all its members to join, the brokers answer nothing else on that
        connection, and then refuse what was asked meanwhile. So whenever partitions are taken away, all that
        is settled is committed before the next round, and what was refused is tried again soon.
        The last commits of all go on being polled for, or the group would wait for us, and we for it.
Rule 4 (K2): the metadata never keeps an offset from being committed: where it is too large for the brokers,
        it is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chronicle.transports.kafka.assignment import Assignment, Commit, Part
from chronicle.transports.kafka.metadata import ROOM
from chronicle.transports.kafka.problems import error_in
from chronicle.transports.kafka.reports import COMMIT_FAILED, Reports
from chronicle.transports.kafka.states import KafkaEvent

EVERY: Final = 0.2  # seconds
AGAIN: Final = 1.0  # seconds between commits that fail
ANSWER: Final = 30.0  # seconds after which the answer to a commit is no longer expected
LAST: Final = 4.0  # seconds that the last commits may take; then there is one left to leave the group in
OVERTAKING: Final = 2.0  # seconds in which what was asked for before a cut may still overtake what comes next
LOOK: Final = 0.01
NO_ROOM: Final = 0
# The group was being shared out when the commit was asked for; the next one may be heard.
SHARING: Final = (
    KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
)  # fmt: skip
SHARINGS: Final = 10  # such answers in a row that are no news


class Commits:
    """Commits the positions of one assignment. On the client's thread."""

    def __init__(self, topic: str, assignment: Assignment, reports: Reports) -> None:
        self._topic = topic
        self._assignment = assignment
        self._reports = reports
        self._room = ROOM  # for metadata
        self._due = 0.0
        self._asked: list[Commit] = []
        self._asked_at = 0.0
        self._failures = 0  # since one was answered well …
        self._why: KafkaError | None = None  # … and the last of them

    def plan(self, consumer: Consumer, now: float) -> None:
        """Commit what has changed, if it is time; the answer comes with a later poll."""
        if now < self._due or (self._asked and now - self._asked_at < ANSWER):
            return
        commits = self._assignment.commits(room=self._room)
        if not commits:
            return
        self._asked, self._asked_at, self._due = commits, now, now + EVERY
        try:
            consumer.commit(offsets=self._offsets(commits), asynchronous=True)
        except KafkaException as error:
            self._failed(error_in(error))

    def answered(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """The brokers' word about a commit."""
        commits, self._asked = self._asked, []
        answers = {one.partition: one for one in partitions or ()}
        worst = error
        for commit in commits:
            answer = answers.get(commit.part.number)
            # An answer that took very long may be about an earlier position.
            if answer is not None and answer.offset == commit.position.offset:
                worst = worst or answer.error
                if error is None and answer.error is None:
                    commit.done()
        if worst is not None:
            self._failed(worst)
            return
        self._failures, self._why = 0, None
        self._reports.over(COMMIT_FAILED)
        self._reports.happened.append(KafkaEvent.COMMIT_OK)

    def _failed(self, error: KafkaError) -> None:
        self._asked = []
        self._failures, self._why = self._failures + 1, error
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._room = NO_ROOM
        elif self._failures > (SHARINGS if error.code() in SHARING else 1):
            self._due = monotonic() + AGAIN
            self._reports.happened.append(KafkaEvent.COMMIT_ERR)
            text = f"offsets could not be committed: {error.str()}; trying again"
            self._reports.trouble(COMMIT_FAILED, logging.WARNING, text, tries=self._failures)

    def finish(self, consumer: Consumer) -> None:
        """Commit all that is settled, and wait for the answer; what is left is told.

        The client is polled meanwhile: in a group that is being shared out it must do its part, or nobody's
        commits are taken. What a poll brings comes again.
        """
        until, self._due = monotonic() + LAST, 0.0
        while self._asked or self._assignment.commits(room=self._room):
            now = monotonic()
            if now >= until or self._is_refused:
                break
            if now - self._asked_at >= OVERTAKING:
                self._asked = []
            self.plan(consumer, now)
            consumer.poll(LOOK)
        if left := self._assignment.commits(room=self._room):
            self._tell_left([commit.part.number for commit in left], self._why)

    @property
    def _is_refused(self) -> bool:
        """Whether trying again would bring nothing."""
        passing = (*SHARING, KafkaError.OFFSET_METADATA_TOO_LARGE)
        return self._failures > 1 and self._why is not None and self._why.code() not in passing

    def now(self, consumer: Consumer, parts: Sequence[Part]) -> None:
        """Commit these, and all that is ours, and wait for the answer; of these, a failure is told."""
        error: KafkaError | None = None
        ours = dict.fromkeys([*parts, *self._assignment.parts()])
        for room in (self._room, NO_ROOM):
            commits = self._assignment.commits(ours, room)
            if not commits:
                return
            try:
                answers = consumer.commit(offsets=self._offsets(commits), asynchronous=False) or ()
                error = next((one.error for one in answers if one.error is not None), None)
            except KafkaException as failure:
                error = error_in(failure)
            if error is None:
                for commit in commits:
                    commit.done()
                return
        if numbers := [commit.part.number for commit in commits if commit.part in parts]:
            self._tell_left(numbers, error)

    def _tell_left(self, partitions: Sequence[int], error: KafkaError | None) -> None:
        why = error.str() if error is not None else "no answer"
        text = f"settled offsets could not be committed, so records come again: {why}"
        self._reports.say(COMMIT_FAILED, logging.ERROR, text, partitions=partitions)

    def _offsets(self, commits: Sequence[Commit]) -> list[TopicPartition]:
        return [
            TopicPartition(self._topic, part.number, position.offset, metadata=position.metadata)
            for part, position, _ in commits
        ]
