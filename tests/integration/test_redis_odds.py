"""What else stands in a consumer's way at Redis: another group's past, strange members, slow links."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import ConnectionLost
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.connection import Wire
from chronicle.transports.redis.reader import BATCH_BYTES, StreamReader
from chronicle.transports.seam import Closing, Connector, Reading, never
from support.fixtures import StartChronicle, StartRedis
from support.ports import free_ports
from support.proxy import Mode, Proxy
from support.redis_server import RedisServer
from support.stream_hands import hands
from support.stream_stage import StreamStage

LARGE: Final = 1_000_000  # bytes; the proxy passes 65536 at a time
STUNTED: Final = b"\xc1junk"  # no message that a script could unpack


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    yield redis_server.streams.make(redis_server.streams.name("odds"))
    redis_server.streams.clear()


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(redis_server, chronicle, tmp_path)


# --- other groups -----------------------------------------------------------------------------------


def test_dead_letters_are_for_every_group(redis_server: RedisServer, stream: str) -> None:
    """S6, Z16: whoever consumes the dead letters themselves gets all of them, whichever group had failed."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream) as consumer:
        (delivery,) = consumer.get(1)
        assert consumer.settle(delivery, Action.DEAD_LETTER) is Fate.DONE
    with hands(redis_server, f"{stream}.dlq", group="repair") as repair:
        assert [letter.body for letter in repair.get(1)] == [b"1"]


def test_what_is_redriven_elsewhere_is_for_every_group(stage: StreamStage, redis_server: RedisServer) -> None:
    """S6, Z16: it is news there, also to a group of another name than the one it failed in."""
    stage.publish({"n": 1})
    assert stage.consume("no", "--on-failure", "dead-letter").returncode == 0
    other = stage.streams.make(stage.streams.name("other"), group="workers")
    redriven = stage.command("dlq", "redrive", "--to", other)
    assert redriven.returncode == 0, redriven.stderr
    assert stage.dead_letters() == []
    with hands(redis_server, other, group="workers") as workers:
        assert [delivery.body for delivery in workers.get(1)] == [b'{"n": 1}']


def test_a_group_deleted_during_an_outage_passes_nothing_over(redis_server: RedisServer, stream: str) -> None:
    """S7, S1: `--from end` is about the first start; what was added since belongs to the group."""
    redis_server.streams.publish(stream, b"old")
    with hands(redis_server, stream, group="tail", **{"from": "end"}) as consumer:
        redis_server.streams.publish(stream, b"first")
        (first,) = consumer.get(1)
        assert first.body == b"first"
        consumer.settle(first, Action.ACK)
        with redis_server.client() as client:
            client.xgroup_destroy(stream, "tail")
        redis_server.streams.publish(stream, b"second", b"third")
        consumer.reconnect()
        bodies = [delivery.body for delivery in consumer.get(4)]
        assert bodies[-2:] == [b"second", b"third"]
        assert "redis.group_recreated" in consumer.said


# --- retries ----------------------------------------------------------------------------------------


def test_a_strange_member_among_the_retries_stops_nobody(redis_server: RedisServer, stream: str) -> None:
    """D-2, X1: it is told and left alone, the retries behind it come, and it does not count as work."""
    with redis_server.client() as client, hands(redis_server, stream) as consumer:
        redis_server.streams.publish(stream, b"1")
        (delivery,) = consumer.get(1)
        client.zadd(f"{stream}.retry", {STUNTED: 1, b"": 2, b"\x01": 3})
        assert consumer.settle(delivery, Action.REQUEUE, delay=0.2) is Fate.DONE
        redis_server.streams.publish(stream, b"2")
        came = consumer.get(2)
        assert {(one.body, one.attempts) for one in came} == {(b"1", 2), (b"2", 1)}
        for one in came:
            consumer.settle(one, Action.ACK)
        assert consumer.reaches_the_end()
        assert consumer.said == ["redis.strange_retry"]
        assert set(client.zrange(f"{stream}.retry", 0, -1)) == {STUNTED, b"", b"\x01"}


def test_a_full_server_with_a_due_retry_is_still_emptied(private_redis: StartRedis) -> None:
    """S-e, F10: putting it back has to wait; reading and acknowledging do not."""
    server = private_redis()
    stream = server.streams.make(server.streams.name())
    server.streams.publish(stream, *(b"%d" % number for number in range(10)))
    with hands(server, stream, prefetch=2) as consumer:
        (failed,) = consumer.get(1)
        assert consumer.settle(failed, Action.REQUEUE, delay=0.2) is Fate.DONE
        server.configure(maxmemory="1", maxmemory_policy="noeviction")
        try:
            consumer.hear("redis.retry_delayed")
            for _ in range(9):
                (delivery,) = consumer.get(1)
                assert consumer.settle(delivery, Action.ACK) is Fate.DONE
        finally:
            server.configure(maxmemory="0")
        consumer.reconnect()  # otherwise it looks again in five seconds
        (again,) = consumer.get(1)
        assert (again.body, again.attempts) == (b"0", 2)


# --- the way to the server --------------------------------------------------------------------------


def test_a_long_answer_is_an_answer_as_long_as_it_flows(redis_server: RedisServer, stream: str) -> None:
    """S2, F14: a large entry over a slow link takes its time; only silence is a loss."""
    redis_server.streams.publish(stream, b"x" * LARGE)
    patience = 1.0
    with Proxy(redis_server.url, delay=0.1) as proxy:
        address = address_of(proxy.url_for(redis_server.url), {})
        wire = Wire(address, address.hosts[0], None)
        try:
            proxy.set(Mode.DELAY)
            began = time.monotonic()
            ((answer,),) = wire.ask(("XRANGE", stream, "-", "+"), timeout=patience)
            assert len(answer[1][1]) == LARGE
            assert time.monotonic() - began > patience
            wire.put("XRANGE", stream, "-", "+")
            wire.flush()
            while not wire.take():
                wire.look(patience)
                wire.wait(patience / 10)
            proxy.set(Mode.BLACK_HOLE)
            with pytest.raises(ConnectionLost):
                wire.ask(("PING",), timeout=patience)
        finally:
            wire.close()


def test_large_entries_are_looked_at_a_few_at_a_time(redis_server: RedisServer, stream: str) -> None:
    """X7: capture and dlq need memory for a part of the stream, whatever the size of its entries."""
    redis_server.streams.publish(stream, *[b"x" * LARGE] * 40)
    reader = StreamReader(Connector(redis_server.url, stream), Reading())
    reader.open(never)
    try:
        sizes = []
        while (batch := reader.read(1000, 0.0)) is not None:
            sizes.append(sum(len(delivery.body) for delivery in batch))
    finally:
        reader.close(Closing.SETTLED)
    assert sum(sizes) == 40 * LARGE
    assert max(sizes[1:]) <= BATCH_BYTES  # how large they are is known from the first


@pytest.fixture
def sentinel() -> Iterator[Callable[[int], int]]:
    """Starts a sentinel that names this port of the master, right or wrong; its own port."""
    listeners: list[socket.socket] = []

    def answer(client: socket.socket, port: bytes) -> None:
        with client, contextlib.suppress(OSError):
            while asked := client.recv(4096):
                master = b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)
                client.sendall(master if b"GET-MASTER" in asked.upper() else b"+OK\r\n")

    def start(port: int) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=answer, args=(client, b"%d" % port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_sentinel_that_is_out_of_date_is_not_believed(
    redis_server: RedisServer, stream: str, sentinel: Callable[[int], int]
) -> None:
    """S9: it names a master that is gone; the next one is asked."""
    redis_server.streams.publish(stream, b"1")
    (gone,) = free_ports(1)
    stale, good = sentinel(gone), sentinel(redis_server.port)
    url = f"redis+sentinel://127.0.0.1:{stale},127.0.0.1:{good}/service/0"
    with hands(redis_server, stream, url=url) as consumer:
        assert [delivery.body for delivery in consumer.get(1)] == [b"1"]


def test_a_user_without_a_password_is_logged_in(private_redis: StartRedis) -> None:
    """Z14: otherwise the rights of the default user would be used without a word."""
    server = private_redis(users={"alice": "on nopass ~* &* +@all"})
    stream = server.streams.make(server.streams.name())
    with hands(server, stream, url=f"redis://alice@{server.address}/0"), server.client() as client:
        users = [one["user"] for one in client.client_list() if one["name"] == "hands"]
    assert users == ["alice", "alice"]
