"""Which publish an answer of the broker is about (RB7)."""

from __future__ import annotations

from pika import spec

from chronicle.transports.rabbitmq.confirms import CONFIRM_TIMEOUT, NOT_TAKEN, Confirms


def published(*targets: str) -> Confirms[int]:
    """One publish to each of these queues; its item is its number."""
    confirms: Confirms[int] = Confirms()
    for number, target in enumerate(targets, 1):
        confirms.published(number, target, now=float(number))
    return confirms


def ack(number: int, multiple: bool = False) -> spec.Basic.Ack:
    return spec.Basic.Ack(number, multiple)


def test_an_answer_is_for_one_or_for_all_up_to_it() -> None:
    confirms = published("q", "q", "q", "q")
    assert confirms.answered(ack(2)) == [(2, "")]
    assert confirms.answered(ack(3, multiple=True)) == [(1, ""), (3, "")]
    assert len(confirms) == 1


def test_a_nack_is_a_refusal_and_nobody_elses() -> None:
    confirms = published("q", "q")
    assert confirms.answered(spec.Basic.Nack(1)) == [(1, NOT_TAKEN)]
    assert confirms.answered(ack(2)) == [(2, "")]


def test_an_answer_that_comes_twice_counts_once() -> None:
    confirms = published("q")
    confirms.answered(ack(1))
    assert confirms.answered(ack(1)) == []
    assert confirms.answered(ack(7)) == []


def test_what_came_back_is_not_taken_although_it_is_confirmed() -> None:
    """Nobody can tell which of two came back, and the queue is gone with what it had taken."""
    confirms = published("gone", "there", "gone")
    confirms.came_back("gone")
    confirms.published(4, "gone", now=4.0)
    answers = dict(confirms.answered(ack(4, multiple=True)))
    assert [number for number, refusal in answers.items() if "is gone" in refusal] == [1, 3]
    assert (answers[2], answers[4]) == ("", "")


def test_only_the_oldest_is_watched_for_its_answer() -> None:
    confirms = published("q", "q")
    assert not confirms.overdue(now=CONFIRM_TIMEOUT + 1.0)
    assert confirms.overdue(now=CONFIRM_TIMEOUT + 1.5)
    confirms.answered(ack(1))
    assert not confirms.overdue(now=CONFIRM_TIMEOUT + 1.5)
    confirms.answered(ack(2))
    assert not confirms.overdue(now=10 * CONFIRM_TIMEOUT)
