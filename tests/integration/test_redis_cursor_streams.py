"""Read without a group: dead letters, and streams that are deleted, trimmed or lose their end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import ConnectionLost
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.cursor_intake import REPLACED
from chronicle.transports.redis.dialogue import Dialogue
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.position import Position
from chronicle.transports.redis.refusals import OUT_OF_MEMORY
from chronicle.transports.redis.upkeep import UNREAD_TRIMMED
from chronicle.transports.seam import never
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
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for


@pytest.fixture
def streams(redis_server: RedisServer) -> Streams:
    return redis_server.streams


@pytest.fixture
def reader(redis_server: RedisServer) -> Iterator[Reader]:
    made = Reader.of(redis_server)
    yield made
    made.close()
    redis_server.streams.clear()


@pytest.fixture
def dial(reader: Reader) -> Iterator[Callable[[], Dialogue]]:
    """Makes connections on which nothing is asked but what the test asks."""
    address = address_of(reader.url)
    with ExitStack() as wires:

        def made() -> Dialogue:
            wire = connect(address, reader.stream, None, name="test", stopping=never)
            wires.callback(wire.close)
            return Dialogue(wire)

        yield made


def settled_up_to(dialogue: Dialogue, where: Position, id_: bytes) -> None:
    """One entry more is read and settled, and the position is put on its way."""
    where.read(id_)
    where.settled(id_)
    where.save(dialogue)


class TestKey:
    @pytest.mark.parametrize("lost", [False, True], ids=["answered", "connection-lost"])
    def test_D_12_it_goes_back_with_the_stream_whatever_was_under_way(
        self, reader: Reader, streams: Streams, dial: Callable[[], Dialogue], lost: bool
    ) -> None:
        """An answer about an older position, or none at all, says nothing of the way back."""
        dialogue, where = dial(), Position(reader.key, deque())
        where.begin(b"900-0", known=True, kept=False)
        settled_up_to(dialogue, where, b"950-0")
        dialogue.wire.flush()
        where.restart()
        if lost:
            wait_for(lambda: kept(streams, reader) == "950-0", PATIENCE, "the older position")
            settled_up_to(dialogue, where, b"1-0")  # it never leaves
            dialogue = dial()
            where.connected()
        else:
            dialogue.finish(PATIENCE)
        settled_up_to(dialogue, where, b"2-0")
        dialogue.finish(PATIENCE)
        assert (kept(streams, reader), where.is_saved) == ("2-0", True)

    def test_S7_a_lost_end_takes_it_back_though_a_later_one_was_under_way(
        self, reader: Reader, streams: Streams, dial: Callable[[], Dialogue]
    ) -> None:
        """The key must not stay ahead, not even of a position that it has held before."""
        dialogue, where = dial(), Position(reader.key, deque())
        where.begin(b"900-0", known=True, kept=False)
        settled_up_to(dialogue, where, b"940-0")
        dialogue.finish(PATIENCE)
        settled_up_to(dialogue, where, b"950-0")
        dialogue.wire.flush()
        where.lost_end(b"940-0")
        dialogue.finish(PATIENCE)
        where.save(dialogue)
        dialogue.finish(PATIENCE)
        assert (kept(streams, reader), where.is_saved) == ("940-0", True)


class TestDeadLetters:
    def test_Z6_every_field_byte_for_byte(self, reader: Reader, streams: Streams) -> None:
        fields = {"data": bytes(range(256)), "kind": b"\xff\0", "x": b""}
        number = streams.add(reader.stream, fields)
        transport = reader.open()
        (delivery,) = take(transport, 1)
        assert settle(transport, verdict(delivery, Action.DEAD_LETTER)) == [Fate.DONE]
        (letter,) = streams.entries(f"{reader.stream}.dlq")
        assert {name: letter.fields[name] for name in fields} == fields
        assert letter.fields["x-chronicle-id"] == number.encode()
        assert letter.fields["x-chronicle-reason"] == b"for the test"
        assert letter.fields["x-chronicle-queue"] == reader.stream.encode()
        assert letter.fields["x-chronicle-group"] == b""
        turn_until(transport, lambda: kept(streams, reader) == number, "the position")

    def test_more_fields_than_a_script_can_pass_on(self, reader: Reader, streams: Streams) -> None:
        fields = {"data": b"many", **{f"f{number}": b"x" for number in range(5000)}}
        streams.add(reader.stream, fields)
        transport = reader.open()
        (delivery,) = take(transport, 1)
        assert settle(transport, verdict(delivery, Action.DEAD_LETTER)) == [Fate.DONE]
        (letter,) = streams.entries(f"{reader.stream}.dlq")
        assert len(letter.fields) > 5000

    def test_S6_a_lost_answer_makes_no_second_letter(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, b"1")
        with Proxy(reader.url) as proxy:
            through = Reader(proxy.url_for(reader.url), reader.stream)
            transport = through.open()
            (delivery,) = take(transport, 1)
            work = verdict(delivery, Action.DEAD_LETTER)
            proxy.lose_replies(b"XREVRANGE")
            assert not transport.settle([work])
            with pytest.raises(ConnectionLost):
                turn_until(transport, lambda: False, "the loss")
            assert proxy.lost == 1
            reopened(transport)
            assert settle(transport, work) == [Fate.DONE]
            transport.close()
        assert streams.length(f"{reader.stream}.dlq") == 1
        assert kept(streams, through) == streams.entries(reader.stream)[0].id

    def test_S_e_without_memory_it_waits_and_the_position_too(self, private_redis: StartRedis) -> None:
        server = private_redis()
        streams = server.streams
        reader = Reader(server.url, streams.make(streams.name()))
        ids = streams.publish(reader.stream, b"dead", b"well")
        transport = reader.open()
        dead, well = take(transport, 2)
        server.configure(maxmemory="1")
        work = verdict(dead, Action.DEAD_LETTER)
        transport.settle([work, verdict(well, Action.ACK)])
        turn_until(transport, lambda: told(transport, OUT_OF_MEMORY), "the notice")
        assert work.fate is Fate.OPEN
        server.configure(maxmemory="0")
        turn_until(transport, lambda: work.fate is Fate.DONE, "the dead letter")
        turn_until(transport, lambda: kept(streams, reader) == ids[1], "the position")
        assert streams.bodies(f"{reader.stream}.dlq") == [b"dead"]
        transport.close()

    def test_what_a_group_put_back_is_no_news(self, reader: Reader, streams: Streams) -> None:
        """Another try of a group's entry: every reader without a group has had it already."""
        back = {"x-chronicle-stream": reader.stream.encode()}
        streams.publish(reader.stream, b"theirs", fields={**back, "x-chronicle-group": b"orders"})
        (ours,) = streams.publish(reader.stream, b"ours", fields={**back, "x-chronicle-group": b""})
        transport = reader.open()
        (delivery,) = take(transport, 1)
        assert delivery.body == b"ours"
        done(transport, delivery)
        turn_until(transport, lambda: kept(streams, reader) == ours, "the position")


class TestStreamsThatChange:
    def test_S7_a_deleted_stream_is_told_and_its_successor_read(
        self, reader: Reader, streams: Streams
    ) -> None:
        """Also when its ids are smaller: they are the producer's choice."""
        streams.publish(reader.stream, b"1", b"2")
        transport = reader.open()
        done(transport, *take(transport, 2))
        streams.delete(reader.stream)
        with streams.client() as client:
            client.xadd(reader.stream, {"data": b"small"}, id="5-1")
        (delivery,) = take(transport, 1)
        assert delivery.body == b"small"
        assert len(told(transport, REPLACED)) == 1
        done(transport, delivery)
        turn_until(transport, lambda: kept(streams, reader) == "5-1", "the position, moved back")
        streams.publish(reader.stream, b"next")
        assert bodies(take(transport, 1)) == [b"next"]

    def test_S7_a_flushed_server(self, private_redis: StartRedis) -> None:
        server = private_redis()
        reader = Reader(server.url, server.streams.make(server.streams.name()))
        server.streams.publish(reader.stream, b"1")
        transport = reader.open()
        (held,) = take(transport, 1)
        with server.client() as client:
            client.flushall()
        turn_until(transport, lambda: told(transport, REPLACED), "the notice")
        done(transport, held)
        server.streams.publish(reader.stream, b"2")
        assert bodies(take(transport, 1)) == [b"2"]
        transport.close()

    def test_S9_a_stream_that_lost_its_end_is_read_on_from_there(
        self, reader: Reader, streams: Streams
    ) -> None:
        """A failover may lose the newest entries. What is left was read: it does not come again."""
        with streams.client() as client:
            for number in range(1, 5):
                client.xadd(reader.stream, {"data": b"%d" % number}, id=f"{number}-0")
        transport = reader.open()
        _one, two, three, four = take(transport, 4)
        done(transport, two, four)
        with streams.client() as client, client.pipeline() as together:
            together.delete(reader.stream)
            for number in range(1, 4):
                together.xadd(reader.stream, {"data": b"%d" % number}, id=f"{number}-0")
            together.execute()
        turn_until(transport, lambda: told(transport, REPLACED), "the notice")
        with streams.client() as client:
            client.xadd(reader.stream, {"data": b"new"}, id="3-1")
        (new,) = take(transport, 1)
        assert new.body == b"new"
        done(transport, new, three)
        transport.close()
        assert kept(streams, reader) == START  # the first one is still open
        assert bodies(take(reader.open(), 1)) == [b"1"]

    def test_S8_unread_entries_that_were_trimmed_are_counted(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, *(b"%d" % number for number in range(10)))
        transport = reader.open(prefetch=2)
        held = take(transport, 2)
        with streams.client() as client:
            client.xtrim(reader.stream, maxlen=3, approximate=False)
        turn_until(transport, lambda: told(transport, UNREAD_TRIMMED), "the notice")
        assert told(transport, UNREAD_TRIMMED) == [{"count": 5}]
        done(transport, *held)
        assert bodies(take(transport, 3)) == [b"7", b"8", b"9"]
        assert nothing_comes(transport)
        assert len(told(transport, UNREAD_TRIMMED)) == 1

    def test_S8_trimming_what_was_read_is_no_loss(self, reader: Reader, streams: Streams) -> None:
        streams.publish(reader.stream, *(b"%d" % number for number in range(10)))
        transport = reader.open()
        done(transport, *take(transport, 10))
        streams.publish(reader.stream, b"10")
        with streams.client() as client:
            client.xtrim(reader.stream, maxlen=1, approximate=False)
        done(transport, *take(transport, 1))
        with streams.client() as client:
            client.xtrim(reader.stream, maxlen=0, approximate=False)
        time.sleep(1.2)
        assert nothing_comes(transport)
        assert not transport.notices
        wait_for(lambda: transport.is_empty(), PATIENCE, "an empty stream")
