"""Sending many messages: in batches, skipping those that cannot be sent at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from chronicle.errors import InvalidMessage
from chronicle.transports.seam import Outgoing, Publisher, nothing

T = TypeVar("T")
R = TypeVar("R")

BATCH: Final = 100
BATCH_BYTES: Final = 8 * 1024 * 1024
LARGE: Final = 1024 * 1024


def batched(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """A hundred at a time, and fewer when they are large; `size` in bytes.

    A large one is alone: a broker may refuse it for its size, and then no other is in doubt.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        bytes_of_it = size(item)
        if bytes_of_it >= LARGE:
            if batch:
                yield batch
                batch, total = [], 0
            yield [item]
            continue
        batch.append(item)
        total += bytes_of_it
        if len(batch) >= BATCH or total >= BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def publish_batches(
    publisher: Publisher,
    items: Iterable[T],
    outgoing: Callable[[T], Outgoing],
    meanwhile: Callable[[], None] = nothing,
) -> Iterator[tuple[list[T], InvalidMessage | None]]:
    """Publish in order; yields each batch the broker has confirmed, or one item and why it cannot be sent.

    A caller that removes what was published does so before the next batch goes out.
    """

    def publish(batch: Sequence[tuple[T, Outgoing]]) -> None:
        publisher.publish([message for _, message in batch], meanwhile)

    return send_batches(publish, items, outgoing)


def send_batches(
    send: Callable[[Sequence[tuple[T, Outgoing]]], R], items: Iterable[T], outgoing: Callable[[T], Outgoing]
) -> Iterator[tuple[list[T], R | InvalidMessage]]:
    """Send in order, whatever sending is; yields each batch and what `send` returned for it, or one item and
    why it cannot be sent.
    """
    for batch in batched(((item, outgoing(item)) for item in items), lambda pair: len(pair[1].body)):
        try:
            sent = send(batch)
        except InvalidMessage as error:
            if len(batch) == 1:
                yield [batch[0][0]], error
            else:
                # One of them is at fault: sent one by one, they show which.
                for item, _ in batch:
                    yield from send_batches(send, [item], outgoing)
        else:
            yield [item for item, _ in batch], sent
