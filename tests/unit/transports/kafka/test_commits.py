"""What is committed when partitions move, and what a refused commit leads to."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from chronicle.core.notice import Notice
from chronicle.transports.kafka.assignment import Assignment, Part
from chronicle.transports.kafka.commits import EVERY, SHARINGS, Commits
from chronicle.transports.kafka.reports import Reports


class Answering:
    """Stands for the client: remembers what it was to commit, and answers with an error or none."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.asked: list[dict[int, int]] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.asked.append({one.partition: one.offset for one in offsets})
        if self.error is not None and not asynchronous:
            raise KafkaException(self.error)
        return offsets


class Stage:
    """Two partitions, of which ten records each were settled."""

    def __init__(self) -> None:
        self.notices: deque[Notice] = deque()
        self.assignment = Assignment("topic")
        self.parts = [Part(number, 0) for number in range(2)]
        self.assignment.add(self.parts)
        for part in self.parts:
            part.ledger.reached(10)
        self.commits = Commits("topic", self.assignment, Reports(self.notices, lambda: None))

    def fail(self, code: int, times: int) -> Any:
        """Let so many commits be refused, each asked for when the next is due."""
        client: Any = Answering()
        for number in range(times):
            self.commits.plan(client, number * 2 * EVERY)
            self.commits.answered(KafkaError(code), [])
        return client


def test_when_a_partition_is_taken_away_all_that_is_settled_is_committed() -> None:
    """K4: the others' next commit may have to wait until everybody has joined again."""
    stage = Stage()
    gone, stays = stage.parts
    stage.assignment.remove(stage.assignment.close([0]))
    client: Any = Answering()
    stage.commits.now(client, [gone])
    assert client.asked == [{0: 10, 1: 10}]
    assert [part.committed and part.committed.offset for part in (gone, stays)] == [10, 10]


def test_a_commit_that_waits_for_its_answer_is_told_only_for_what_is_gone() -> None:
    stage = Stage()
    stage.assignment.remove(stage.assignment.close([0]))
    client: Any = Answering(KafkaError(KafkaError.REBALANCE_IN_PROGRESS))
    stage.commits.now(client, [stage.parts[0]])
    assert [notice.facts for notice in stage.notices] == [{"partitions": [0]}]


@pytest.mark.parametrize("code", [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS])
def test_commits_that_a_rebalance_refuses_are_tried_again_soon_and_are_no_news(code: int) -> None:
    stage = Stage()
    client = stage.fail(code, SHARINGS)
    assert len(client.asked) == SHARINGS
    assert not stage.notices
    stage.fail(code, 1)
    assert [notice.event for notice in stage.notices] == ["offset_commit_failed"]


def test_other_refusals_are_told_when_they_come_twice() -> None:
    """R-002-34."""
    stage = Stage()
    stage.fail(KafkaError.GROUP_AUTHORIZATION_FAILED, 1)
    assert not stage.notices
    stage.fail(KafkaError.GROUP_AUTHORIZATION_FAILED, 1)
    assert [notice.event for notice in stage.notices] == ["offset_commit_failed"]


class Sharing(Answering):
    """A group that is being shared out: the answers come while it is polled, so many of them refusals."""

    def __init__(self, commits: Commits, *refusals: int) -> None:
        super().__init__()
        self._commits = commits
        self._refusals = deque(refusals)
        self._answered = 0

    def poll(self, _timeout: float) -> None:
        if self._answered < len(self.asked):
            self._answered += 1
            error = KafkaError(self._refusals.popleft()) if self._refusals else None
            answers = [TopicPartition("topic", number, offset) for number, offset in self.asked[-1].items()]
            self._commits.answered(error, answers)


def test_the_last_commits_are_tried_as_long_as_the_group_is_being_shared_out() -> None:
    """D-5, X5: it is polled meanwhile, or the group waits for this member, and its commits for the group."""
    stage = Stage()
    client: Any = Sharing(stage.commits, *[KafkaError.REBALANCE_IN_PROGRESS] * 3)
    stage.commits.finish(client)
    assert client.asked == [{0: 10, 1: 10}] * 4
    assert [part.committed and part.committed.offset for part in stage.parts] == [10, 10]
    assert not stage.notices


def test_last_commits_that_are_refused_twice_are_told_and_given_up() -> None:
    """R-002-34."""
    stage = Stage()
    client: Any = Sharing(stage.commits, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 9)
    stage.commits.finish(client)
    assert len(client.asked) == 2
    assert stage.notices[-1].facts == {"partitions": [0, 1]}
