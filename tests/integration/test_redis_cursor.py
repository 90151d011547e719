"""A stream read without a group: where it begins, what moves its position, how often something is tried."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from chronicle.core.outcome import Action
from chronicle.core.policy import OnFailure, Policy
from chronicle.core.settlement import Fate
from chronicle.engine.job import Bounds, Exit
from chronicle.errors import BrokerRefused, Retry, SettingError
from chronicle.telemetry import events
from chronicle.transports.redis.cursor import CursorTransport
from chronicle.transports.redis.position import NOT_SAVED
from chronicle.transports.seam import Closing, Connector
from conformance.harness import settle, verdict
from support.cursor_reader import (
    PATIENCE,
    START,
    Reader,
    bodies,
    done,
    kept,
    nothing_comes,
    reopened,
    take,
    told,
    turn_until,
)
from support.fixtures import StartRedis
from support.redis_server import RedisServer
from support.running import Gate, Running
from support.streams import Streams


@pytest.fixture
def streams(redis_server: RedisServer) -> Streams:
    return redis_server.streams


@pytest.fixture
def reader(redis_server: RedisServer) -> Iterator[Reader]:
    made = Reader.of(redis_server)
    yield made
    made.close()
    redis_server.streams.clear()


class TestBeginnings:
    def test_from_the_start(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, b"1", b"2")
        assert bodies(take(reader.open(cursor=False), 2)) == [b"1", b"2"]

    def test_from_an_id_that_one_is_known_already(self, reader: Reader, streams: Streams) -> None:
        ids = streams.publish(reader.stream, b"1", b"2", b"3")
        assert bodies(take(reader.open(begin=ids[0]), 2)) == [b"2", b"3"]

    def test_from_the_end_as_of_the_first_connection(self, reader: Reader, streams: Streams) -> None:
        """R-001-37: what is added while there is no connection is not passed over."""
        streams.publish(reader.stream, b"old")
        transport = reader.open(cursor=False, begin="end")
        assert nothing_comes(transport)
        transport.close(Closing.LOST)
        streams.publish(reader.stream, b"meanwhile")
        assert bodies(take(reopened(transport), 1)) == [b"meanwhile"]

    def test_from_the_end_is_kept_before_anything_is_settled(self, reader: Reader, streams: Streams) -> None:
        """A process that is killed at once has missed nothing: the next one begins where it began."""
        (old,) = streams.publish(reader.stream, b"old")
        first = reader.open(begin="end")
        turn_until(first, lambda: kept(streams, reader) == old, "the key")
        first.close(Closing.LOST)
        streams.publish(reader.stream, b"new")
        assert bodies(take(reader.open(begin="end"), 1)) == [b"new"]

    def test_the_key_wins_over_where_to_begin(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, b"1", b"2")
        first = reader.open()
        done(first, take(first, 1)[0])
        first.close()
        assert bodies(take(reader.open(begin="end"), 1)) == [b"2"]

    def test_how_many_wait_where_redis_can_tell(self, reader: Reader, streams: Streams) -> None:
        ids = streams.publish(reader.stream, b"1", b"2", b"3")
        assert reader.make(cursor=False).open(lambda: False) == 3
        assert reader.make(cursor=False, begin=ids[2]).open(lambda: False) == 0
        assert reader.make(cursor=False, begin=ids[0]).open(lambda: False) is None


class TestPosition:
    def test_D_12_it_moves_only_over_settled_entries(self, reader: Reader, streams: Streams) -> None:
        ids = streams.publish(reader.stream, b"1", b"2", b"3")
        transport = reader.open()
        one, two, three = take(transport, 3)
        done(transport, two, three)
        transport.close()
        assert kept(streams, reader) == START
        one, two, three = take(reopened(transport), 3)
        done(transport, one)
        turn_until(transport, lambda: kept(streams, reader) == ids[0], "the first")
        done(transport, three)
        transport.close()
        assert kept(streams, reader) == ids[0]
        assert bodies(take(reader.open(), 2)) == [b"2", b"3"]

    def test_it_survives_a_reconnect_and_nothing_comes_twice(self, reader: Reader, streams: Streams) -> None:
        """R-001-37: what is in work is ours, whatever becomes of the connection."""
        streams.publish(reader.stream, *(b"%d" % number for number in range(6)))
        transport = reader.open()
        held = take(transport, 3)
        reopened(transport)
        later = take(transport, 3)
        assert bodies([*held, *later]) == [b"%d" % number for number in range(6)]
        done(transport, *held, *later)
        transport.close()
        assert kept(streams, reader) == streams.entries(reader.stream)[-1].id

    def test_it_is_never_moved_back(self, reader: Reader, streams: Streams) -> None:
        """Two runs with the same key, by mistake: the slower one does not undo the other's progress."""
        ids = streams.publish(reader.stream, b"1", b"2")
        slow, fast = reader.open(), reader.open()
        first = take(slow, 2)[0]
        done(fast, *take(fast, 2))
        fast.close()
        done(slow, first)
        slow.close()
        assert kept(streams, reader) == ids[1]
        assert len(told(slow, NOT_SAVED)) == 1
        assert slow.unconfirmed == 0  # nothing comes again

    def test_an_end_without_the_server_is_told(self, private_redis: StartRedis) -> None:
        server = private_redis()
        stream = server.streams.make(server.streams.name())
        server.streams.publish(stream, b"1")
        transport = Reader(server.url, stream).open()
        (one,) = take(transport, 1)
        server.freeze()
        try:
            transport.settle([verdict(one, Action.ACK)])
            transport.stop(1.0)
            started = time.monotonic()
            transport.close()
            assert time.monotonic() - started < 10
        finally:
            server.thaw()
        assert told(transport, NOT_SAVED)
        assert transport.unconfirmed == 1


class TestTries:
    def test_another_try_is_made_from_memory_and_counted(self, reader: Reader, streams: Streams) -> None:
        ids = streams.publish(reader.stream, b"again", b"next")
        transport = reader.open()
        again, following = take(transport, 2)
        done(transport, following)
        for tries in range(1, 4):
            assert settle(transport, verdict(again, Action.REQUEUE)) == [Fate.DONE]
            (again,) = take(transport, 1)
            assert (again.body, again.counted, again.redelivered) == (b"again", tries, True)
        assert kept(streams, reader) == START
        done(transport, again)
        turn_until(transport, lambda: kept(streams, reader) == ids[1], "both")
        assert streams.length(reader.stream) == 2

    def test_what_waits_for_another_try_takes_its_place(self, reader: Reader, streams: Streams) -> None:
        """Otherwise a stream that fails would fill the memory."""
        streams.publish(reader.stream, *(b"%d" % number for number in range(50)))
        seen: list[bytes] = []

        def later(message: bytes) -> bool:
            seen.append(message)
            raise Retry(after=3600)

        running = Running(later, reader.make(prefetch=4), prefetch=4, bounds=Bounds(max_time=1.5))
        assert running.ending.code is Exit.DONE
        assert seen == [b"0", b"1", b"2", b"3"]
        assert kept(streams, reader) == START

    def test_a_stop_finishes_the_second_try(self, reader: Reader, streams: Streams) -> None:
        """F2: otherwise the next run would handle again what was settled after it."""
        ids = streams.publish(reader.stream, b"fails", b"well", b"well")
        gate = Gate()
        seen: list[bytes] = []

        def syncer(message: bytes) -> bool:
            seen.append(message)
            if message == b"well":
                return True
            if seen.count(b"fails") == 1:
                gate.free.wait(PATIENCE)
                return False
            return True

        running = Running(syncer, reader.make(), concurrency=2, prefetch=4)
        running.wait_for(lambda: len(seen) == 3, "all at work")
        running.runner.stop("the test says so")
        running.wait_for(lambda: running.notebook.facts(events.STOPPING), "the stop")
        gate.free.set()
        assert running.ending.code is Exit.DONE
        assert seen == [b"fails", b"well", b"well", b"fails"]
        assert kept(streams, reader) == ids[2]

    def test_a_stop_does_not_wait_for_later_tries(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, b"never")
        running = Running(lambda message: False, reader.make(), policy=Policy(on_failure=OnFailure.REQUEUE))
        running.wait_for(lambda: running.runner.counters.received, "the first try")
        started = time.monotonic()
        assert running.stop().code is Exit.DONE
        assert time.monotonic() - started < 10
        assert kept(streams, reader) == START


class TestRefused:
    @pytest.mark.parametrize("key", ["", ".dlq", ".retry"])
    def test_a_key_of_the_queue_itself(self, reader: Reader, key: str) -> None:
        reader.key = f"{reader.stream}{key}"
        with pytest.raises(SettingError, match="--cursor"):
            reader.make()

    def test_a_key_that_holds_something_else(self, reader: Reader, streams: Streams) -> None:
        with streams.client() as client:
            client.set(reader.key, "not an id")
        with pytest.raises(BrokerRefused, match="does not hold the id"):
            reader.open()
        streams.delete(reader.key)
        with streams.client() as client:
            client.lpush(reader.key, "x")
        with pytest.raises(BrokerRefused, match="not a position"):
            reader.open()

    def test_a_key_on_another_node_of_a_cluster(self) -> None:
        choices = {"no_group": True, "cursor": "{other}.cursor"}
        with pytest.raises(SettingError, match="different nodes"):
            CursorTransport(Connector("redis+cluster://localhost:7000", "{orders}", choices=choices))

    def test_retries_that_must_outlive_the_process(self, reader: Reader) -> None:
        chosen = {"no_group": True}
        with pytest.raises(SettingError, match="others read that too"):
            CursorTransport(Connector(reader.url, reader.stream, choices=chosen, retry_delays=(1.0,)))
