"""Acks that never cover what was not handled: RB17, against pika's encoder and a model broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import ConnectionLost
from chronicle.transports.rabbitmq.acks import TagLedger, ack_frame, nack_frame
from support.amqp import method, spec, taken_apart

CHANNEL = 7


class ModelBroker:
    """Applies settling frames as RabbitMQ does, and knows which tag was settled how."""

    def __init__(self) -> None:
        self.unacked: list[int] = []
        self.settled: dict[int, str] = {}

    def apply(self, frames: bytes) -> int:
        """How many frames there were."""
        settling = methods(frames)
        for word in settling:
            tag = word.delivery_tag
            # RabbitMQ closes the channel otherwise: "unknown delivery tag".
            assert tag in self.unacked
            if isinstance(word, spec.Basic.Nack):
                assert not word.multiple
                self._settle([tag], "requeued" if word.requeue else "dead-lettered")
            else:
                assert isinstance(word, spec.Basic.Ack)
                self._settle([t for t in self.unacked if t <= tag] if word.multiple else [tag], "acked")
        return len(settling)

    def _settle(self, tags: list[int], how: str) -> None:
        for tag in tags:
            assert tag not in self.settled
            self.settled[tag] = how
            self.unacked.remove(tag)


def methods(frames: bytes) -> list[Any]:
    taken = taken_apart(frames)
    assert all(frame.channel_number == CHANNEL for frame in taken)
    return [frame.method for frame in taken]


def ledger_with(tags: range) -> TagLedger:
    ledger = TagLedger(CHANNEL)
    for tag in tags:
        ledger.delivered(tag)
    return ledger


@given(channel=st.integers(1, 65535), tag=st.integers(0, 2**64 - 1), flag=st.booleans())
def test_frames_are_those_pika_sends(channel: int, tag: int, flag: bool) -> None:
    assert ack_frame(channel, tag, flag) == method(channel, spec.Basic.Ack(tag, flag))
    assert nack_frame(channel, tag, flag) == method(channel, spec.Basic.Nack(tag, False, flag))


def test_RB17_a_finished_prefix_goes_out_as_one_frame_and_the_rest_singly() -> None:
    ledger = ledger_with(range(1, 8))
    for tag in (2, 5, 1, 3, 7):
        assert ledger.ack(tag)
    assert ledger.flush() == b"".join(
        [ack_frame(CHANNEL, 3, True), ack_frame(CHANNEL, 5, False), ack_frame(CHANNEL, 7, False)]
    )
    assert [tag for tag in range(1, 8) if tag in ledger] == [4, 6]
    assert ledger.ack(4)
    assert ledger.ack(6)
    # 5 and 7 are settled already: the highest tag that is not, speaks for both.
    assert ledger.flush() == ack_frame(CHANNEL, 6, True)
    assert ledger.flush() == b""


def test_a_single_ack_needs_no_multiple() -> None:
    ledger = ledger_with(range(1, 3))
    assert ledger.ack(1)
    assert ledger.flush() == ack_frame(CHANNEL, 1, False)


def test_RB17_nacks_go_out_before_an_ack_that_passes_over_them() -> None:
    ledger = ledger_with(range(1, 4))
    assert ledger.ack(1)
    assert ledger.nack(2, requeue=False)
    assert ledger.ack(3)
    assert ledger.flush() == nack_frame(CHANNEL, 2, False) + ack_frame(CHANNEL, 3, True)


def test_RB17_what_is_left_open_is_never_covered() -> None:
    ledger = ledger_with(range(1, 5))
    for tag in (2, 3, 4):
        assert ledger.ack(tag)
    assert [word.multiple for word in methods(ledger.flush())] == [False] * 3


def test_RB17_a_tag_that_never_came_is_never_covered() -> None:
    ledger = TagLedger(CHANNEL)
    for tag in (1, 2, 4, 5, 6):
        ledger.delivered(tag)
        assert ledger.ack(tag)
    assert [(word.delivery_tag, word.multiple) for word in methods(ledger.flush())] == [
        (2, True),
        (4, False),
        (5, False),
        (6, False),
    ]


def test_a_tag_is_settled_once_and_only_if_it_came() -> None:
    ledger = ledger_with(range(1, 3))
    assert ledger.ack(1)
    assert not ledger.ack(1)
    assert not ledger.nack(1, requeue=True)
    assert not ledger.ack(9)
    assert not ledger.ack(0)
    assert ledger.flush() == ack_frame(CHANNEL, 1, False)
    assert not ledger.nack(1, requeue=True)
    assert ledger.flush() == b""


@pytest.mark.parametrize("tag", [0, 1, 2])
def test_a_broker_that_counts_backwards_is_not_trusted(tag: int) -> None:
    ledger = ledger_with(range(1, 3))
    with pytest.raises(ConnectionLost):
        ledger.delivered(tag)


def test_a_long_run_keeps_nothing_but_what_is_open() -> None:
    ledger = TagLedger(CHANNEL)
    for first in range(1, 20_001, 20):
        for tag in range(first, first + 20):
            ledger.delivered(tag)
        for tag in range(first, first + 20):
            ledger.ack(tag)
        assert ledger.flush() == ack_frame(CHANNEL, first + 19, True)
        kept = [value for value in vars(ledger).values() if isinstance(value, list | set)]
        assert not any(kept)


Turn = tuple[str, float]
turns = st.lists(
    st.tuples(st.sampled_from(["deliver", "deliver", "gap", "ack", "ack", "requeue", "reject", "flush"]),
              st.floats(0, 1, exclude_max=True)),
    max_size=120,
)  # fmt: skip


@given(story=turns)
def test_RB17_no_story_acks_what_was_not_handled_or_settles_anything_twice(story: list[Turn]) -> None:
    """A model broker applies the frames of random stories of deliveries, finishes and flushes."""
    broker, ledger = ModelBroker(), TagLedger(CHANNEL)
    open_tags: list[int] = []
    expected: dict[int, str] = {}
    newest = 0
    for what, luck in [*story, ("flush", 0.0)]:
        match what:
            case "deliver" | "gap":
                newest += 1
                broker.unacked.append(newest)
                if what == "deliver":
                    ledger.delivered(newest)
                    open_tags.append(newest)
            case "flush":
                finished = len(expected) - len(broker.settled)
                assert broker.apply(ledger.flush()) <= finished
                assert broker.settled == expected
                assert [tag for tag in range(1, newest + 1) if tag in ledger] == sorted(open_tags)
            case _ if open_tags:
                tag = open_tags.pop(int(luck * len(open_tags)))
                if what == "ack":
                    assert ledger.ack(tag)
                    expected[tag] = "acked"
                else:
                    assert ledger.nack(tag, requeue=what == "requeue")
                    expected[tag] = "requeued" if what == "requeue" else "dead-lettered"


@given(order=st.permutations(range(1, 31)), per_turn=st.integers(1, 30))
def test_RB17_any_order_of_success_ends_with_everything_acked_once(order: list[int], per_turn: int) -> None:
    broker, ledger = ModelBroker(), ledger_with(range(1, 31))
    broker.unacked = list(range(1, 31))
    for start in range(0, 30, per_turn):
        for tag in order[start : start + per_turn]:
            assert ledger.ack(tag)
        broker.apply(ledger.flush())
        assert set(broker.settled) == set(order[: start + per_turn])


def test_all_of_a_turn_is_one_frame_when_it_can_be() -> None:
    ledger = ledger_with(range(1, 101))
    for tag in range(100, 0, -1):
        ledger.ack(tag)
    assert ledger.flush() == ack_frame(CHANNEL, 100, True)
