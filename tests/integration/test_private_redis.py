"""Private Redis servers do what the fault tests rely on: they die, return, freeze, ask, and fail over."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from redis import Redis
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    RedisError,
)

from support.certs import Pair
from support.fixtures import StartCluster, StartRedis, StartSentinels
from support.redis_server import RedisServer
from support.streams import Streams


@pytest.mark.parametrize(("durable", "kept"), [(True, [b"kept"]), (False, [])])
def test_a_killed_server_comes_back_with_what_was_durable(
    private_redis: StartRedis, durable: bool, kept: list[bytes]
) -> None:
    server = private_redis(durable=durable)
    stream = server.streams.make(server.streams.name())
    server.streams.publish(stream, b"kept")
    server.kill()
    assert not server.running
    server.start()
    assert server.streams.bodies(stream) == kept


def test_a_stopped_server_keeps_what_is_pending(private_redis: StartRedis) -> None:
    server = private_redis(durable=True)
    stream = server.streams.make(server.streams.name())
    server.streams.publish(stream, b"1", b"2")
    (held,) = server.streams.read(stream, "one", 1)
    server.stop()
    server.start()
    assert [(one.id, one.consumer, one.count) for one in server.streams.pending(stream)] == [
        (held.id, "one", 1)
    ]
    assert [entry.body for entry in server.streams.waiting(stream)] == [b"2"]


def test_a_frozen_server_answers_nobody_until_it_is_thawed(private_redis: StartRedis) -> None:
    server = private_redis()
    server.freeze()
    try:
        with pytest.raises(RedisError, match="Timeout"), server.client(timeout=0.3) as client:
            client.ping()
    finally:
        server.thaw()
    with server.client() as client:
        assert client.ping()


def test_the_tls_port_asks_for_a_certificate_when_told(private_redis: StartRedis) -> None:
    strict, lenient = private_redis(client_certs=True), private_redis(tls=True)
    for server in (strict, lenient):
        assert server.certs is not None
        assert ping_tls(server, server.certs.client)
    assert ping_tls(lenient, None)
    with pytest.raises(RedisError):
        ping_tls(strict, None)


def test_another_name_in_the_certificate_is_noticed(private_redis: StartRedis) -> None:
    """Z9."""
    server = private_redis(wrong_host=True)
    with pytest.raises(RedisError, match=r"(?i)hostname"):
        ping_tls(server, None)


def test_users_have_their_own_rights(private_redis: StartRedis) -> None:
    """Z14."""
    server = private_redis(password="root's", users={"reader": "on >of~books ~books* +xrange"})
    with server.client() as client:
        client.xadd("books", {"data": b"1"})
    with Redis.from_url(server.url_as("reader", "of~books")) as client:
        assert len(client.xrange("books")) == 1
        with pytest.raises(NoPermissionError):
            client.xadd("books", {"data": b"2"})
    with Redis.from_url(server.url_as("reader", "wrong")) as client, pytest.raises(AuthenticationError):
        client.ping()


def test_a_full_server_refuses_writes(private_redis: StartRedis) -> None:
    server = private_redis()
    server.configure(maxmemory="1", maxmemory_policy="noeviction")
    with pytest.raises(OutOfMemoryError):
        server.streams.publish("stream", b"1")
    server.configure(maxmemory="0")
    assert server.streams.publish("stream", b"1")


def test_a_server_that_cannot_start_says_why(private_redis: StartRedis) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)Redis ended while starting.*no-such-setting"):
        private_redis(settings={"no-such-setting": "1"})


def test_what_was_made_is_cleared_with_all_that_belongs_to_it(redis_server: RedisServer) -> None:
    streams = Streams(redis_server.client)
    stream = streams.make(streams.name())
    streams.publish(f"{stream}.dlq", b"1")
    other = redis_server.streams.make(redis_server.streams.name())
    streams.clear()
    assert [streams.exists(key) for key in (stream, f"{stream}.dlq", other)] == [False, False, True]


def test_sentinels_promote_the_replica_of_a_killed_master(private_sentinels: StartSentinels) -> None:
    """S9: twice, so that a test may do it as often as it likes."""
    sentinels = private_sentinels()
    streams = sentinels.streams
    stream = streams.make(streams.name())
    for number in range(2):
        with sentinels.master.client() as client:
            client.xadd(stream, {"data": b"%d" % number})
            assert client.wait(1, 10_000) == 1  # the replica has it
        before = sentinels.master
        sentinels.fail_over()
        assert sentinels.master is not before
        sentinels.restore_replica()
    assert streams.bodies(stream) == [b"0", b"1"]


def test_a_cluster_serves_every_slot_and_moves_them(private_cluster: StartCluster) -> None:
    cluster = private_cluster()
    streams = cluster.streams
    names = [streams.make(streams.name()) for _ in range(20)]
    assert len({cluster.node_of(name).port for name in names}) > 1
    stream = names[0]
    streams.publish(stream, b"1")
    (held,) = streams.read(stream, "one")
    before = cluster.node_of(stream)
    assert cluster.move(stream) is not before
    streams.publish(stream, b"2")
    assert streams.bodies(stream) == [b"1", b"2"]
    assert [one.id for one in streams.pending(stream)] == [held.id]
    assert streams.exists(f"{stream}.dlq") is False


def ping_tls(server: RedisServer, who: Pair | None) -> bool:
    assert server.certs is not None
    pair: Mapping[str, str] = {"ssl_certfile": str(who.cert), "ssl_keyfile": str(who.key)} if who else {}
    with Redis.from_url(server.tls_url, ssl_ca_certs=str(server.certs.ca), **pair) as client:
        return bool(client.ping())
