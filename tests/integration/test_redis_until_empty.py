"""When a Redis stream is empty for a group: not before everything is handled, and no later (D-12, S4)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import ConnectionLost
from chronicle.transports.redis.connection import ANSWER_TIMEOUT
from support.fixtures import StartChronicle, StartRedis
from support.redis_server import RedisServer
from support.stage import counted
from support.stream_hands import hands
from support.stream_stage import PATIENCE, StreamStage
from support.waiting import wait_for

MANY_FIELDS: Final = 3001  # more than a script can pass on


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    yield redis_server.streams.make(redis_server.streams.name("empty"))
    redis_server.streams.clear()


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(redis_server, chronicle, tmp_path)


def test_ids_of_any_length_are_compared_exactly(redis_server: RedisServer, stream: str) -> None:
    """D-12: a producer may count in nanoseconds; a double has too few digits to tell two of those apart."""
    with redis_server.client() as client, hands(redis_server, stream) as consumer:
        client.xadd(stream, {"data": b"1"}, id="1794946964842000001-18446744073709551613")
        (first,) = consumer.get(1)
        consumer.settle(first, Action.ACK)
        assert consumer.reaches_the_end()
        client.xadd(stream, {"data": b"2"}, id="1794946964842000001-18446744073709551614")
        assert consumer.transport.is_empty() is False
        (second,) = consumer.get(1)
        consumer.settle(second, Action.ACK)
        assert consumer.reaches_the_end()
        client.xadd(stream, {"data": b"3"}, id="1794946964842000002-0")
        assert consumer.transport.is_empty() is False


def test_only_the_own_delayed_retries_are_waited_for(redis_server: RedisServer, stream: str) -> None:
    """D-2: another group's next try is no business of this one."""
    redis_server.streams.publish(stream, b"1")
    with (
        hands(redis_server, stream, group="late") as late,
        hands(redis_server, stream, group="other") as other,
    ):
        (failed,) = late.get(1)
        assert late.settle(failed, Action.REQUEUE, delay=3600.0) is Fate.DONE
        (handled,) = other.get(1)
        other.settle(handled, Action.ACK)
        assert other.reaches_the_end()
        assert not late.reaches_the_end()


def test_each_of_many_slow_failures_gets_its_second_try(stage: StreamStage) -> None:
    """S4, D-1: touches and requeues cross all the time, and none of them strands an entry."""
    stage.publish(*({"n": n} for n in range(60)))
    process = stage.consume("slowly_no_then_yes", "--concurrency", "20", "--brake", "0")
    assert process.returncode == 0, process.stderr
    assert sorted(stage.tries()) == [(False, 1)] * 60 + [(True, 2)] * 60
    assert stage.streams.pending(stage.stream) == []
    assert not process.lines("redis.taken_over")


def test_a_run_after_a_kill_handles_what_was_left(stage: StreamStage) -> None:
    """F1, D-12: the dead process's name is still leased; that does not make its entries somebody's work."""
    stage.publish({"n": 1}, {"n": 2})
    killed = stage.start("takes_its_time")
    wait_for(lambda: len(stage.streams.pending(stage.stream)) == 2, PATIENCE, "a full buffer")
    wait_for(stage.calls, PATIENCE, "the first call")
    killed.kill()
    process = stage.consume("yes", "--claim-idle", "2s")
    assert process.returncode == 0, process.stderr
    assert sorted(call["message"]["n"] for call in stage.calls()[1:]) == [1, 2]
    assert stage.streams.pending(stage.stream) == []


def test_what_the_living_work_on_is_not_waited_for(redis_server: RedisServer, stream: str) -> None:
    """S4: who renews its lease finishes its own entries."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream, tag="slow") as slow, hands(redis_server, stream, tag="done") as done:
        slow.get(1)
        assert done.turn_for(0.3, room=1) == []
        deadline = time.monotonic() + 10
        while not done.reaches_the_end() and time.monotonic() < deadline:
            slow.turn(0)
        assert done.transport.is_empty() is True


def test_entries_put_aside_do_not_keep_the_last_messages_away(
    stage: StreamStage, redis_server: RedisServer
) -> None:
    """D-7, X6: they are in nobody's way, so the whole number of messages is reached."""
    wide = {f"f{number}": b"" for number in range(MANY_FIELDS)}
    for _ in range(20):
        stage.streams.add(stage.stream, {**wide, "data": b'{"ok": false}'})
    stage.publish(*[{"ok": True}] * 10)
    options = ("--on-failure", "dead-letter", "--concurrency", "10", "--prefetch", "20")
    process = stage.start("as_told", *options, "--max-messages", "24")
    assert process.wait(20) == 4, process.stderr
    assert len(process.lines("message.put_aside")) == 20
    assert counted(process)["ack"] == 4
    assert len(redis_server.streams.pending(stage.stream)) == 20


def test_a_frozen_server_does_not_hold_the_question_up(private_redis: StartRedis) -> None:
    """F11: whether the stream is empty is not known then; a stop must not wait for it."""
    server = private_redis()
    stream = server.streams.make(server.streams.name())
    with hands(server, stream) as consumer:
        consumer.turn_for(0.2, room=1)
        server.freeze()
        try:
            asked = time.monotonic()
            try:
                answer = consumer.transport.is_empty()
            except ConnectionLost:
                answer = None
            assert answer is None
            assert time.monotonic() - asked < ANSWER_TIMEOUT
        finally:
            server.thaw()


def test_a_server_that_hangs_up_on_the_idle_does_not_end_a_drain(
    private_redis: StartRedis, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """F2, S3: the connection that only listens has nothing to do any more; its end is no loss."""
    stage = StreamStage(private_redis(settings={"timeout": "2"}), chronicle, tmp_path)
    stage.publish({"n": 1}, {"n": 2})
    process = stage.start("takes_its_time", "--prefetch", "1")
    wait_for(stage.calls, PATIENCE, "the call")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, process.stderr
    assert counted(process) == {"received": 1, "ack": 1}
    assert stage.streams.pending(stage.stream) == []
    assert not process.lines("connection.lost")


def test_nobody_listens_in_a_drain(redis_server: RedisServer, stream: str) -> None:
    """D-11, F2: only the connection that carries verdicts is left, and can be lost."""
    tag = f"drain-{stream}"
    redis_server.streams.publish(stream, b"1")
    with redis_server.client() as client, hands(redis_server, stream, tag=tag) as consumer:
        (delivery,) = consumer.get(1)
        consumer.transport.stop(1.0)
        consumer.turn_until(lambda: len(clients(client, tag)) == 1, "the end of the bell")
        assert consumer.settle(delivery, Action.ACK) is Fate.DONE
        consumer.leave()
    assert redis_server.streams.pending(stream) == []


def clients(client: Redis, name: str) -> list[dict[str, Any]]:
    """The connections of this name."""
    return [one for one in client.client_list() if one["name"] == name]


def test_a_server_that_hangs_up_on_the_idle_does_not_disturb_the_busy(private_redis: StartRedis) -> None:
    """F5: while there is no room nobody listens, and still nothing is lost."""
    server = private_redis(settings={"timeout": "2"})
    stream = server.streams.make(server.streams.name())
    server.streams.publish(stream, b"1", b"2")
    with hands(server, stream, prefetch=1) as consumer:
        (first,) = consumer.get(1)
        consumer.turn_for(5.0)
        assert consumer.settle(first, Action.ACK) is Fate.DONE
        assert [delivery.body for delivery in consumer.get(1)] == [b"2"]
