"""What counts as a try at Redis (S4, D-2), what burns none, and what a dead letter tells (S6)."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.stage import counted
from support.stream_stage import PATIENCE, StreamStage
from support.waiting import wait_for

FIRST: Final = (False, 1)
CLAIM: Final = ("--claim-idle", "2s")


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(redis_server, chronicle, tmp_path)


def stop(process: ChronicleProcess, code: int = 0) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == code


def test_a_failed_message_gets_one_more_try_and_then_its_dead_letter(stage: StreamStage) -> None:
    """D-1, D-2: the fields stay as they came, and chronicle's own stand beside them."""
    (number,) = stage.publish({"n": 1}, fields={"kind": b"\xff\x00", "x": b"1"})
    process = stage.consume("no", "--tag", "tester")
    assert process.returncode == 0, process.stderr
    assert stage.tries() == [FIRST, (True, 2)]
    (letter,) = stage.dead_letters()
    fields = dict(letter.fields)
    own = {name: fields.pop(name) for name in list(fields) if name.startswith("x-chronicle-")}
    assert fields == {"data": b'{"n": 1}', "kind": b"\xff\x00", "x": b"1"}
    assert own["x-chronicle-attempts"] == b"2"
    assert own["x-chronicle-queue"] == stage.stream.encode()
    assert own["x-chronicle-id"] == number.encode()
    assert own["x-chronicle-group"] == b"chronicle"
    assert b"tester" in own["x-chronicle-consumer"]
    assert own["x-chronicle-reason"]
    assert int(own["x-chronicle-first-failed-at"]) <= int(own["x-chronicle-last-failed-at"])
    assert stage.streams.pending(stage.stream) == []
    assert counted(process) == {"received": 2, "nack": 2, "requeued": 1, "dead_lettered": 1}


def test_counted_retries_wait_outside_of_the_process(stage: StreamStage) -> None:
    """D-2, D-3: another process gives the next try, and knows how many there were."""
    stage.publish({"n": 1})
    options = ("--on-failure", "retry:3", "--retry-delay", "1s,100ms")
    first = stage.start("no", *options)
    wait_for(lambda: stage.streams.delayed(stage.stream), PATIENCE, "the delayed entry")
    assert stage.streams.pending(stage.stream) == []
    stop(first)
    assert stage.consume("no", *options).returncode == 0
    assert stage.tries() == [FIRST, (True, 2), (True, 3)]
    calls = [call["at"] for call in stage.calls()]
    assert calls[1] - calls[0] >= 0.99
    assert [entry.fields["x-chronicle-attempts"] for entry in stage.dead_letters()] == [b"3"]
    assert stage.streams.delayed(stage.stream) == []


def test_a_syncer_may_ask_for_a_delay(stage: StreamStage) -> None:
    """D-16: Retry(after=…) uses the same way."""
    stage.publish({"n": 1})
    assert stage.consume("retries").returncode == 0
    assert stage.tries() == [FIRST, (True, 2)]
    calls = [call["at"] for call in stage.calls()]
    assert calls[1] - calls[0] >= 0.19


def test_a_delayed_entry_is_for_its_own_group(stage: StreamStage) -> None:
    """Two groups on one stream: the other one does not get the second try."""
    stage.publish({"n": 1})
    assert stage.consume("yes", "--group", "other").returncode == 0
    assert stage.consume("retries").returncode == 0
    assert stage.consume("yes", "--group", "other").returncode == 0
    assert stage.tries() == [FIRST, FIRST, (True, 2)]


def test_a_clean_stop_burns_no_try(stage: StreamStage) -> None:
    """S4, D-11: neither for what was interrupted at the deadline nor for what had not begun."""
    stage.publish({"n": 1}, {"n": 2}, {"n": 3})
    process = stage.start("takes_its_time", "--prefetch", "3", "--drain-timeout", "300ms")
    wait_for(lambda: len(stage.streams.pending(stage.stream)) == 3, PATIENCE, "a full buffer")
    wait_for(stage.calls, PATIENCE, "the first call")
    stop(process, code=4)
    assert stage.consume("yes").returncode == 0
    assert stage.tries() == [FIRST] * 4


def test_what_a_stop_gives_back_is_free(stage: StreamStage) -> None:
    """D-11: another consumer has it with its next sweep, and does not wait for --claim-idle."""
    stage.publish({"n": 1}, {"n": 2})
    process = stage.start("takes_its_time", "--prefetch", "2", "--drain-timeout", "300ms")
    wait_for(lambda: len(stage.streams.pending(stage.stream)) == 2, PATIENCE, "a full buffer")
    other = stage.start("yes", "--tag", "other", "--claim-idle", "10s")
    other.wait_for_line("consumer.ready")
    stop(process, code=4)
    wait_for(lambda: len(stage.calls()) == 3, 7, "both, once more")
    stop(other)
    assert stage.tries() == [FIRST] * 3


def test_a_look_burns_no_try(stage: StreamStage) -> None:
    """S4: capture and dlq read with XRANGE, and change nothing at all."""
    stage.publish({"n": 1})
    before = stage.streams.groups(stage.stream)
    for command in (("dlq", "list"), ("dlq", "show")):
        stage.command(*command)
    assert stage.streams.groups(stage.stream) == before
    assert stage.consume("yes").returncode == 0
    assert stage.tries() == [FIRST]


def test_a_lost_connection_burns_no_try(stage: StreamStage, redis_server: RedisServer) -> None:
    """S3: what was received is still ours, begun or not."""
    stage.publish(*({"n": n} for n in range(4)))
    process = stage.start("takes_a_second", "--prefetch", "4", "--concurrency", "2")
    wait_for(lambda: len(stage.calls()) == 2, PATIENCE, "two begun")
    redis_server.disconnect_everybody()
    wait_for(lambda: len(stage.calls()) == 4, PATIENCE, "the other two")
    # While both threads are at work, nobody looks at the connection for up to a second.
    wait_for(lambda: len(process.lines("consumer.ready")) == 2, PATIENCE, "another connection")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert stage.tries() == [FIRST] * 4


def test_what_a_dead_consumer_had_counts_as_tried(stage: StreamStage) -> None:
    """S4, D-12: it may have been the message that killed it."""
    stage.publish({"n": 1})
    process = stage.start("takes_its_time")
    wait_for(stage.calls, PATIENCE, "the call")
    process.kill()
    again = stage.start("yes", *CLAIM)
    wait_for(lambda: len(stage.calls()) == 2, PATIENCE, "the second try")
    stop(again)
    assert stage.tries() == [FIRST, (True, 2)]
    assert again.lines("redis.claimed")


def test_a_clean_restart_has_the_same_name(stage: StreamStage) -> None:
    """D-12, S5: names are stable, and a consumer that holds nothing leaves none behind."""
    for _ in range(2):
        stage.publish({"n": 1})
        process = stage.start("takes_a_second", "--tag", "stable")
        wait_for(lambda: stage.streams.pending(stage.stream), PATIENCE, "something pending")
        (name,) = {one.consumer for one in stage.streams.pending(stage.stream)}
        assert name.endswith("stable")
        stop(process)
    assert stage.streams.consumers(stage.stream) == []


def test_everything_that_was_there_before_the_group_is_handled(stage: StreamStage) -> None:
    """S1: a new group begins with the oldest entry, unless told otherwise."""
    stage.publish(*({"n": n} for n in range(3)))
    assert stage.consume("yes", "--group", "late").returncode == 0
    assert len(stage.calls()) == 3
    assert stage.consume("yes", "--group", "later", "--from", "end").returncode == 0
    assert len(stage.calls()) == 3


def test_an_entry_without_a_body_is_bad_input(stage: StreamStage) -> None:
    """X1, D-4: it is somebody else's, and ends among the dead letters as it came."""
    stage.streams.add(stage.stream, {"other": b"1"})
    stage.publish({"n": 1})
    assert stage.consume("yes").returncode == 0
    assert len(stage.calls()) == 1
    (letter,) = stage.dead_letters()
    assert letter.fields["other"] == b"1"
