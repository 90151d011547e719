"""What is ours of a topic, while its partitions come and go."""

from __future__ import annotations

from collections import deque

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from chronicle.transports.kafka.assignment import Assignment, Part

END = 3
TOPIC = "orders"


def assigned() -> tuple[Assignment, Part]:
    """A partition of which everything was handed out, and nothing settled."""
    assignment, part = Assignment(TOPIC), Part(0, 0)
    assignment.add((part,))
    came = deque((part, record(offset)) for offset in range(END))
    assert len(assignment.hand_out(came, END)) == END
    return assignment, part


def record(offset: int) -> Message:
    return Message(TOPIC, 0, offset, None, b"{}", [], None, (TIMESTAMP_CREATE_TIME, 0))


def test_R_004_9_a_partition_that_is_taken_away_is_not_done_with() -> None:
    """What had not begun goes back unrun, and may come to us again."""
    assignment, part = assigned()
    assert assignment.has_seen({0: END})
    assignment.close([0])
    assert not assignment.has_seen({0: END})
    assignment.remove([part])
    assert not assignment.has_seen({0: END})  # it was asked about while it was ours


def test_R_004_9_a_partition_that_came_since_the_question_was_not_asked_about() -> None:
    assignment, _ = assigned()
    other = Part(1, 0)
    assignment.add((other,))
    other.reached(0)
    assert not assignment.has_seen({0: END})
    assert assignment.has_seen({0: END, 1: 0})
