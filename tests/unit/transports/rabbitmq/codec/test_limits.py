"""Z12, X7: what the splitter keeps is bounded, whatever a broker announces or sends."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from chronicle.transports.rabbitmq.codec.frames import (
    LARGEST_BODY,
    LARGEST_FRAME,
    MARGIN,
    SPILL,
    Arrival,
    Splitter,
)
from support.amqp import FRAME_MAX, bodies, content, header, heartbeat, method, spec, taken_apart

OURS, OTHER = 3, 4
MOST = 1000  # --max-body
NONSENSE = 1 << 62
READ = 65536
PIECE = b"x" * (FRAME_MAX - 8)


def deliver(tag: int = 1, channel: int = OURS) -> bytes:
    return method(channel, spec.Basic.Deliver("ctag-1", tag, False, "proca", "cus.12"))


def returned(channel: int = OURS) -> bytes:
    return method(channel, spec.Basic.Return(312, "NO_ROUTE", "", "q"))


def ours(tag: int, body: bytes, **properties: Any) -> bytes:
    frames = content(OURS, spec.Basic.Deliver("ctag-1", tag, False, "proca", "cus.12"), body, **properties)
    return b"".join(frames)


def splitter(max_body: int | None = MOST, frame_max: int = FRAME_MAX) -> Splitter:
    watching = Splitter()
    watching.watch(OURS, max_body=max_body, frame_max=frame_max)
    return watching


def fed(watching: Splitter, stream: bytes) -> tuple[list[Arrival], bytes]:
    arrivals, foreign = [], []
    for at in range(0, len(stream), READ):
        some, rest = watching.feed(stream[at : at + READ])
        arrivals += some
        foreign.append(rest)
    return arrivals, b"".join(foreign)


def kept_of(watching: Splitter, pieces: Iterable[bytes]) -> tuple[int, int]:
    """How much memory was taken at most while these were fed, and how many bytes they were."""
    tracemalloc.start()
    try:
        before, sent = tracemalloc.get_traced_memory()[0], 0
        for piece in pieces:
            watching.feed(piece)
            sent += len(piece)
        return tracemalloc.get_traced_memory()[1] - before, sent
    finally:
        tracemalloc.stop()


def test_Z12_a_body_far_above_the_limit_is_passed_over_and_the_next_message_arrives() -> None:
    size = MOST + MARGIN + 1
    watching = splitter()
    arrivals, foreign = fed(watching, ours(1, b"x" * size, headers={"x": 1}) + heartbeat() + ours(2, b"{}"))
    large, small = arrivals
    assert (large.tag, large.body, small.tag, small.body) == (1, b"", 2, b"{}")
    assert large.unread == f"the body has {size} bytes, the limit is {MOST}"
    assert large.envelope
    assert not small.unread
    assert (foreign, watching.fault) == (heartbeat(), "")


def test_Z12_a_body_a_little_too_large_is_read_and_goes_the_usual_way() -> None:
    body = b"x" * (MOST + MARGIN)
    (arrival,), _ = fed(splitter(), ours(1, body))
    assert (arrival.body, arrival.unread) == (body, "")


def test_who_sets_no_limit_reads_everything() -> None:
    """A reader must not lose what it is going to move."""
    body = b"x" * (MOST + 2 * MARGIN)
    (arrival,), _ = fed(splitter(max_body=None), ours(1, body))
    assert (arrival.body, arrival.unread) == (body, "")


@pytest.mark.parametrize("max_body", [None, MOST])
@pytest.mark.parametrize("size", [LARGEST_BODY + 1, NONSENSE, (1 << 64) - 1])
def test_a_size_that_no_broker_could_hold_is_a_fault(size: int, max_body: int | None) -> None:
    watching = splitter(max_body)
    fed(watching, deliver() + header(OURS, size))
    assert watching.fault == f"a message of {size} bytes"


def test_X7_passing_over_a_body_keeps_nothing() -> None:
    frames = bodies(OURS, PIECE) * 200
    start = deliver() + header(OURS, LARGEST_BODY)
    kept, sent = kept_of(splitter(), [start, *frames])
    assert kept < sent / 20


def test_X7_a_body_in_tiny_frames_takes_no_more_than_it_is_large() -> None:
    size = 200_000
    frames = bodies(OURS, b"xy", 2) * (size // 2 - 1)
    kept, _ = kept_of(splitter(size), [deliver() + header(OURS, size), *frames])
    assert kept < 4 * size


def test_X7_empty_frames_without_end_keep_nothing() -> None:
    frame = struct.pack(">BHI", 3, OURS, 0) + b"\xce"
    kept, sent = kept_of(splitter(), [deliver() + header(OURS, 10), *[frame * 8000] * 20])
    assert kept < sent / 4


@pytest.mark.parametrize("channel", [OURS, OTHER])
def test_X7_a_content_of_pikas_never_brings_its_body(channel: int) -> None:
    """pika would collect what a header announces: a returned message, or one on another channel."""
    start = returned(channel) if channel == OURS else deliver(channel=channel)
    watching = splitter()
    _, foreign = fed(watching, start + header(channel, NONSENSE) + b"".join(bodies(channel, PIECE)))
    theirs = taken_apart(foreign)
    assert [type(frame).__name__ for frame in theirs] == ["Method", "Header"]
    assert theirs[1].body_size == 0
    assert not watching.fault


@pytest.mark.parametrize("channel", [OURS, OTHER])
@pytest.mark.parametrize("kind", [1, 3, 8])
def test_a_frame_above_what_was_agreed_upon_is_a_fault(kind: int, channel: int) -> None:
    watching = splitter()
    fed(watching, struct.pack(">BHI", kind, channel, FRAME_MAX + 1))
    assert watching.fault == f"a frame of {FRAME_MAX + 1} bytes"


def test_only_a_content_header_may_be_longer_and_not_without_end() -> None:
    (arrival,), _ = fed(splitter(), ours(1, b"{}", headers={"x": "y" * 300_000}))
    assert len(arrival.envelope) > 300_000
    watching = splitter()
    fed(watching, struct.pack(">BHI", 2, OURS, LARGEST_FRAME + 1))
    assert watching.fault


def test_after_a_fault_pika_gets_only_a_little_more() -> None:
    """It waits for the end of a frame of any announced length, and keeps what comes till then."""
    watching = splitter()
    fed(watching, struct.pack(">BHI", 3, OURS, 0xFFFFFFFF))
    _, foreign = fed(watching, b"x" * 10 * SPILL)
    assert len(foreign) == SPILL
