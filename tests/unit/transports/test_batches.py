"""Batches, and finding the one message in a batch that cannot be sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from chronicle.errors import InvalidMessage
from chronicle.transports.batches import BATCH, BATCH_BYTES, LARGE, batched, publish_batches
from chronicle.transports.seam import Outgoing, nothing


class Picky:
    """A publisher that cannot encode some bodies; like the real ones it then sends none of the batch."""

    def __init__(self, *bad: bytes) -> None:
        self._bad = bad
        self.sent: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def publish(self, batch: Sequence[Outgoing], meanwhile: Callable[[], None] = nothing) -> None:
        if any(message.body in self._bad for message in batch):
            raise InvalidMessage("a header")
        self.sent += [message.body for message in batch]
        meanwhile()


def test_batches_are_bounded_by_number_and_by_size() -> None:
    assert [len(batch) for batch in batched(range(2 * BATCH + 1), lambda _: 1)] == [BATCH, BATCH, 1]
    assert [len(batch) for batch in batched(range(20), lambda _: BATCH_BYTES // 16)] == [16, 4]
    assert list(batched([], len)) == []


def test_a_large_one_is_alone() -> None:
    """RB7: if the broker refuses it for its size, what became of every other one is known."""
    assert list(batched([1, 2, LARGE, LARGE, 3], lambda size: size)) == [[1, 2], [LARGE], [LARGE], [3]]


def test_all_at_once_when_all_can_be_sent() -> None:
    publisher, served = Picky(), []
    done = list(publish_batches(publisher, [b"1", b"2"], Outgoing, lambda: served.append(1)))
    assert done == [([b"1", b"2"], None)]
    assert (publisher.sent, served) == ([b"1", b"2"], [1])


def test_only_the_culprits_stay_behind() -> None:
    publisher = Picky(b"2", b"4")
    done = [
        (batch, problem is None)
        for batch, problem in publish_batches(publisher, [b"1", b"2", b"3", b"4"], Outgoing)
    ]
    assert done == [([b"1"], True), ([b"2"], False), ([b"3"], True), ([b"4"], False)]
    assert publisher.sent == [b"1", b"3"]


def test_a_batch_goes_out_when_the_one_before_was_dealt_with() -> None:
    """Publish, confirm, remove (RB7): at most one batch is in both queues."""
    publisher = Picky()
    going = publish_batches(publisher, [b"x"] * (BATCH + 1), Outgoing)
    next(going)
    assert len(publisher.sent) == BATCH
