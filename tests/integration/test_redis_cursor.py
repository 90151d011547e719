"""A stream read without a group: where it begins, what moves its position, what a restart goes on with."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.policy import OnFailure, Policy
from chronicle.core.settlement import Fate
from chronicle.engine.job import Bounds, Exit
from chronicle.errors import BrokerRefused, ConnectionLost, Retry, SettingError
from chronicle.telemetry import events
from chronicle.transports.redis.cursor import CursorTransport
from chronicle.transports.redis.cursor_intake import REPLACED
from chronicle.transports.redis.position import NOT_SAVED
from chronicle.transports.redis.refusals import OUT_OF_MEMORY
from chronicle.transports.redis.upkeep import UNREAD_TRIMMED
from chronicle.transports.seam import Closing, Connector
from conformance.harness import settle, verdict
from support import journal
from support.fixtures import StartChronicle, StartRedis
from support.process import ChronicleProcess
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.running import Gate, Running
from support.streams import Streams
from support.waiting import wait_for

PATIENCE: Final = 30.0
START: Final = "0-0"
SYNCERS: Final = str(Path(journal.__file__))


@pytest.fixture(scope="module")
def server(private_redis: StartRedis) -> RedisServer:
    return private_redis()


@pytest.fixture
def streams(server: RedisServer) -> Iterator[Streams]:
    yield server.streams
    server.streams.clear()


@pytest.fixture
def stream(streams: Streams) -> str:
    """A stream with no group, and nothing in it but what a test adds."""
    name = streams.name("cursor")
    streams.make(name)
    with streams.client() as client:
        client.xgroup_destroy(name, "chronicle")
    return name


class Reader:
    """Makes transports for one stream, and closes them at the end."""

    def __init__(self, url: str, stream: str) -> None:
        self.url = url
        self.stream = stream
        self.key = f"{stream}.cursor"
        self._made: list[CursorTransport] = []

    def make(self, *, cursor: bool = True, prefetch: int = 10, begin: str = "start") -> CursorTransport:
        chosen = {"no_group": True, "from": begin, **({"cursor": self.key} if cursor else {})}
        transport = CursorTransport(Connector(self.url, self.stream, prefetch, choices=chosen))
        self._made.append(transport)
        return transport

    def open(self, **chosen: Any) -> CursorTransport:
        return reopened(self.make(**chosen))

    def close(self) -> None:
        for transport in self._made:
            transport.close()


@pytest.fixture
def reader(server: RedisServer, stream: str) -> Iterator[Reader]:
    made = Reader(server.url, stream)
    yield made
    made.close()


def reopened(transport: CursorTransport) -> CursorTransport:
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    return transport


def take(transport: CursorTransport, wanted: int) -> list[Delivery]:
    got: list[Delivery] = []

    def enough() -> bool:
        got.extend(transport.receive(wanted - len(got), 0.05))
        return len(got) >= wanted

    wait_for(enough, PATIENCE, f"{wanted} entries", every=0)
    return got


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def nothing_comes(transport: CursorTransport) -> bool:
    return not any(transport.receive(10, 0.05) for _ in range(6))


def done(transport: CursorTransport, *deliveries: Delivery) -> None:
    assert set(settle(transport, *(verdict(one, Action.ACK) for one in deliveries))) == {Fate.DONE}


def kept(streams: Streams, reader: Reader) -> str:
    """The position in the key."""
    with streams.client() as client:
        value: bytes | None = client.get(reader.key)
    return START if value is None else value.decode()


def told(transport: CursorTransport, event: str) -> list[dict[str, Any]]:
    return [dict(notice.facts) for notice in transport.notices if notice.event == event]


def turn_until(transport: CursorTransport, condition: Callable[[], Any], what: str) -> None:
    def turned() -> Any:
        transport.receive(0, 0.02)
        transport.settle(())
        return condition()

    wait_for(turned, PATIENCE, what, every=0)


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

    def test_S6_a_lost_answer_makes_no_second_letter(self, server: RedisServer, reader: Reader) -> None:
        server.streams.publish(reader.stream, b"1")
        with Proxy(server.url) as proxy:
            through = Reader(proxy.url_for(server.url), reader.stream)
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
        assert server.streams.length(f"{reader.stream}.dlq") == 1
        assert kept(server.streams, through) == server.streams.entries(reader.stream)[0].id

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
        streams.add(reader.stream, {"data": b"theirs", "x-chronicle-group": b"orders"})
        (ours,) = streams.publish(reader.stream, b"ours", fields={"x-chronicle-group": b""})
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


class TestCommand:
    def start(
        self, chronicle: StartChronicle, reader: Reader, folder: Path, *options: str
    ) -> ChronicleProcess:
        where = ("--url", reader.url, "--queue", reader.stream, "--no-group")
        what = ("--syncer", f"{SYNCERS}:sync", "--schema", "json", "--log-format", "json", *options)
        return chronicle("consume", *where, *what, env={journal.JOURNAL: str(folder / "journal")})

    @staticmethod
    def handled(folder: Path) -> list[int]:
        file = folder / "journal"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [int(number) for word, number, *_ in lines if word == "end"]

    def wait_for_more(self, folder: Path, than: int) -> None:
        wait_for(lambda: len(self.handled(folder)) > than, PATIENCE, f"more than {than}")

    @staticmethod
    def message(number: int, **more: Any) -> bytes:
        return json.dumps({"id": number, **more}).encode()

    def test_a_restart_goes_on_exactly_where_it_was(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        for begin in (0, 50, 100):
            streams.publish(reader.stream, *(self.message(number) for number in range(begin, begin + 50)))
            process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--until-empty")
            assert process.wait(PATIENCE) == 0, process.stderr
            assert self.handled(tmp_path) == list(range(begin + 50))
        (stopped,) = process.lines(events.STOPPED)
        assert (stopped["received"], stopped["stream"], stopped["mode"]) == (50, reader.stream, "stream")

    def test_a_signal_leaves_nothing_to_be_done_twice(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        """F2."""
        total = 200
        streams.publish(reader.stream, *(self.message(number, seconds=0.01) for number in range(total)))
        for _ in range(3):
            process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--concurrency", "4")
            before = len(self.handled(tmp_path))
            self.wait_for_more(tmp_path, before + 10)
            process.signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, process.stderr
        process = self.start(chronicle, reader, tmp_path, "--cursor", reader.key, "--until-empty")
        assert process.wait(PATIENCE) == 0, process.stderr
        assert sorted(self.handled(tmp_path)) == list(range(total))

    def test_F1_kill_9_loses_nothing(
        self, reader: Reader, streams: Streams, chronicle: StartChronicle, tmp_path: Path
    ) -> None:
        """Repeats are at most what was held, and what the position did not say yet."""
        total, kills, prefetch = 600, 6, 8

        def publish() -> None:
            for number in range(total):
                streams.publish(reader.stream, self.message(number, seconds=0.005))

        publisher = threading.Thread(target=publish)
        publisher.start()
        options = ("--cursor", reader.key, "--concurrency", "4", "--prefetch", str(prefetch))
        for _ in range(kills):
            before = len(self.handled(tmp_path))
            process = self.start(chronicle, reader, tmp_path, *options)
            self.wait_for_more(tmp_path, before + 30)
            process.kill()
        publisher.join()
        process = self.start(chronicle, reader, tmp_path, *options, "--until-empty")
        assert process.wait(PATIENCE) == 0, process.stderr
        handled = self.handled(tmp_path)
        assert set(handled) == set(range(total))
        assert len(handled) - total <= kills * 2 * prefetch

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            (("--on-failure", "retry:3"), "others read that too"),
            (("--claim-idle", "5s"), "--claim-idle"),
            (("--group", "g"), "--group"),
        ],
        ids=lambda value: value[0] if isinstance(value, tuple) else "",
    )
    def test_what_means_nothing_here_is_refused(
        self,
        reader: Reader,
        chronicle: StartChronicle,
        tmp_path: Path,
        options: tuple[str, ...],
        word: str,
    ) -> None:
        process = self.start(chronicle, reader, tmp_path, *options)
        assert process.wait(PATIENCE) == 2, process.stderr
        assert word in process.stderr
