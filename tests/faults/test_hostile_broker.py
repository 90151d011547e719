"""X7, Z12, RB13: a broker that says whatever it likes costs bounded memory and never a message."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.body import MAX_BODY
from chronicle.transports.rabbitmq.codec.frames import MARGIN
from support import proc, retrying, samples
from support.amqp import FRAME_MAX, bodies, content, header, method, spec
from support.fixtures import Broker, StartChronicle
from support.garbler import Garbler, Noise
from support.stage import Stage, counted

GOOD: Final = samples.body("action-plain.json")
NONSENSE: Final = 1 << 62
PIECE: Final = b"x" * (FRAME_MAX - 8)
MEGABYTES: Final = 400  # of noise
BOUND: Final = 160_000_000  # an interpreter with its libraries takes some 40 MB
QUICK: Final = ("--reconnect-initial", "1ms", "--reconnect-max", "10ms")


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path)


def deliver(channel: int) -> bytes:
    return method(channel, spec.Basic.Deliver("c", 999, False, "", "q"))


def much(piece: bytes) -> Iterable[bytes]:
    return repeat(piece, MEGABYTES * 1_000_000 // len(piece))


def announced(channel: int) -> Iterator[bytes]:
    yield deliver(channel) + header(channel, NONSENSE)
    yield from much(b"".join(bodies(channel, PIECE)))


def returned(channel: int) -> Iterator[bytes]:
    yield method(channel, spec.Basic.Return(312, "NO_ROUTE", "", "q")) + header(channel, NONSENSE)
    yield from much(b"".join(bodies(channel, PIECE)))


def too_many(channel: int) -> Iterator[bytes]:
    for tag in range(1000, 1000 + MEGABYTES * 100):
        yield b"".join(content(channel, spec.Basic.Deliver("c", tag, False, "", "q"), b"x" * 10_000))


def tables(channel: int) -> Iterator[bytes]:
    headers = {"x": "y" * 3_000_000}
    for tag in range(1000, 1000 + MEGABYTES // 3):
        yield b"".join(content(channel, spec.Basic.Deliver("c", tag, False, "", "q"), GOOD, headers=headers))


def long_frames(channel: int) -> Iterator[bytes]:
    yield deliver(channel) + header(channel, 3 * 1024 * 1024)
    yield struct.pack(">BHI", 3, channel, 3 * 1024 * 1024) + bytes(3 * 1024 * 1024) + b"\xce"


def halves(channel: int) -> Iterator[bytes]:
    """Contents that are never finished, on channels that nobody opened."""
    for other in range(channel + 1, channel + 300):
        yield deliver(other) + header(other, NONSENSE) + b"".join(bodies(other, PIECE))


def methods(channel: int) -> Iterable[bytes]:
    return repeat(method(channel, spec.Basic.Ack(1, True)) * 100, 300)


UNREADABLE: Final[dict[str, tuple[Noise, str]]] = {
    "2^62 announced": (announced, f"a message of {NONSENSE} bytes"),
    "more than the prefetch": (too_many, "far more deliveries than the prefetch allows"),
    "large header tables": (tables, "far more deliveries than the prefetch allows"),
    "frames above frame_max": (long_frames, f"a frame of {3 * 1024 * 1024} bytes"),
}
HARMLESS: Final[dict[str, Noise]] = {
    "2^62 returned": returned,
    "half contents on many channels": halves,
    "methods": methods,
}


@pytest.mark.parametrize(("noise", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_X7_what_no_broker_would_send_ends_the_connection(stage: Stage, noise: Noise, reason: str) -> None:
    """Z12: the connection is dropped with the reason, nothing is collected, nothing is lost."""
    stage.publish(GOOD)
    with Garbler(stage.url, noise) as garbler:
        process = stage.start("takes_its_time", *QUICK, env={"CHRONICLE_URL": garbler.url})
        assert proc.peak_until_end(process, 60) < BOUND
    assert process.returncode == 1
    (fatal,) = process.lines("connection.unreadable")
    assert reason in fatal["text"]
    assert [message.body for message in stage.left(1)] == [GOOD]


@pytest.mark.parametrize("noise", HARMLESS.values(), ids=HARMLESS)
def test_X7_what_does_not_concern_the_consumer_is_passed_over(stage: Stage, noise: Noise) -> None:
    stage.publish(GOOD)
    with Garbler(stage.url, noise) as garbler:
        process = stage.start("yes", "--until-empty", env={"CHRONICLE_URL": garbler.url})
        assert proc.peak_until_end(process, 60) < BOUND
    assert process.returncode == 0, process.stderr[-2000:]
    assert counted(process) == {"received": 1, "ack": 1}


def _huge(number: int, megabytes: int) -> bytes:
    return json.dumps({"schema": "proca:action:2", "actionId": number}).encode().ljust(megabytes * 1_000_000)


def test_Z12_huge_messages_are_rejected_unread(stage: Stage) -> None:
    """They cost no memory, they are among the dead letters as they were, and the next message is handled."""
    huge = [_huge(number, 20) for number in range(6)]
    stage.publish(*huge, GOOD)
    process = stage.start("yes", "--until-empty", "--prefetch", "6", "--on-invalid", "dead-letter")
    assert proc.peak_until_end(process, 60) < 100_000_000
    assert process.returncode == 0, process.stderr
    assert [call["message"]["actionId"] for call in stage.calls()] == [1001]
    assert counted(process)["rejected"] == 6
    assert sorted(message.body for message in stage.dead_letters(6)) == sorted(huge)
    reasons = {line["reason"] for line in process.lines("message.rejected")}
    assert reasons == {f"the body has 20000000 bytes, the limit is {MAX_BODY}"}


def test_Z12_a_capture_says_that_an_unread_message_is_missing(stage: Stage, tmp_path: Path) -> None:
    """A record without its body would pass for the message."""
    stage.publish(_huge(1, 20), GOOD)
    file = tmp_path / "handled.jsonl"
    process = stage.consume("yes", "--on-invalid", "dead-letter", "--capture", str(file))
    assert process.returncode == 0, process.stderr
    assert file.read_text().count("\n") == 1
    (line,) = process.lines("capture.failed")
    assert line["missing"] == 1


@pytest.mark.parametrize("size", [MAX_BODY + 1, MAX_BODY + MARGIN + 1])
@pytest.mark.parametrize("work", [(), retrying.options(2)], ids=["", "retry"])
def test_Z12_what_only_we_keep_is_copied_whole(
    stage: Stage, rabbit: Broker, size: int, work: tuple[str, ...]
) -> None:
    """Without a dead-letter exchange the broker would delete what is rejected, so it is read."""
    queue = rabbit.queues.declare(rabbit.queues.name("kept"))
    dead = retrying.prepare(rabbit.queues, queue)
    body = GOOD.ljust(size)
    rabbit.queues.publish(queue, body)
    process = stage.consume("yes", *work, "--on-invalid", "dead-letter", queue=queue)
    assert process.returncode == 0, process.stderr
    assert [message.body for message in rabbit.queues.get_all(dead)] == [body]
