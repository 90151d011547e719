"""Channels: at most once, said so; every gap counted; what has arrived is finished (S10, R-001-22)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.outcome import Action
from chronicle.core.record import to_record
from chronicle.engine.job import Exit
from chronicle.errors import BrokerRefused, ConnectionLost, Retry, SettingError
from chronicle.telemetry import events
from chronicle.transports.redis import subscription
from chronicle.transports.redis.pubsub import MAYBE_LOST, UNFINISHED, PubSubTransport
from chronicle.transports.seam import Closing, Connector, Tls
from conformance.harness import verdict
from support import rehearsed
from support.fixtures import StartRedis
from support.proxy import Mode, Proxy
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer
from support.running import Gate, Running
from support.waiting import wait_for

PATIENCE: Final = 30.0
SYNCERS: Final = str(Path(rehearsed.__file__))
MODE: Final = {"mode": "pubsub"}


@pytest.fixture(scope="module")
def server(private_redis: StartRedis) -> RedisServer:
    return private_redis(tls=True)


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with server.client() as client:
        yield client


def transport_for(url: str, queue: str, **more: Any) -> PubSubTransport:
    return PubSubTransport(Connector(url, queue, choices=MODE, **more))


def listeners(client: Any, channel: str) -> int:
    return int(client.execute_command("PUBSUB", "NUMSUB", channel)[1])


def take(transport: PubSubTransport, wanted: int) -> list[Any]:
    got: list[Any] = []

    def enough() -> bool:
        got.extend(transport.receive(wanted - len(got), 0.05))
        return len(got) >= wanted

    wait_for(enough, PATIENCE, f"{wanted} messages", every=0)
    return got


def opened(transport: PubSubTransport) -> PubSubTransport:
    """Open it as the engine does, also after a loss."""
    transport.close(Closing.LOST)
    transport.open(lambda: False)
    return transport


def until_lost(transport: PubSubTransport, room: int) -> str:
    """Turn it until it tells of a loss: in which words."""
    for _ in range(300):
        try:
            transport.receive(room, 0.1)
        except ConnectionLost as lost:
            return str(lost)
    raise AssertionError("no loss was told")


def start(syncer: Callable[..., Any], transport: PubSubTransport, **more: Any) -> Running:
    running = Running(syncer, transport, **more)
    running.wait_for(lambda: running.notebook.facts(events.READY), "being ready")
    return running


class TestDeliveries:
    def test_R_001_22_a_message_and_where_it_came_from(self, server: RedisServer, client: Any) -> None:
        transport = opened(transport_for(server.url, "news, orders.*"))
        before = time.time() * 1000
        client.publish("news", b"\xff\0 any bytes")
        client.publish("orders.7", b"")
        plain, matched = take(transport, 2)
        assert (plain.body, plain.origin) == (b"\xff\0 any bytes", {"channel": "news"})
        assert (matched.body, matched.origin) == (b"", {"channel": "orders.7", "pattern": "orders.*"})
        assert (plain.headers, plain.redelivered, plain.attempts) == ({}, False, 1)
        assert plain.timestamp is not None
        assert before - 1000 < plain.timestamp < before + 10_000
        record = to_record(plain)
        assert (record["transport"], record["channel"], record["attributes"]) == ("redis", "news", {})
        assert record["payload"]["base64"]
        transport.close()

    def test_only_as_many_as_there_is_room_for(self, server: RedisServer, client: Any) -> None:
        """D-7, X7: the rest waits, unparsed, and stays in order."""
        transport = opened(transport_for(server.url, "room"))
        for number in range(100):
            client.publish("room", b"%d" % number)
        assert not transport.receive(0, 0.05)
        got: list[bytes] = []
        while len(got) < 100:
            batch = transport.receive(7, 1.0)
            assert 0 < len(batch) <= 7
            got += [delivery.body for delivery in batch]
        assert got == [b"%d" % number for number in range(100)]
        transport.close()

    def test_with_no_room_a_full_socket_wakes_nobody(self, server: RedisServer, client: Any) -> None:
        """The event loop watches the same descriptor: it must not spin while the syncers are busy."""
        transport = opened(transport_for(server.url, "spin"))
        client.publish("spin", b"x" * 1000)
        started = time.monotonic()
        assert not transport.receive(0, 0.3)
        assert time.monotonic() - started >= 0.29
        assert len(take(transport, 1)) == 1
        transport.close()

    def test_what_comes_while_subscribing_is_not_lost(self, server: RedisServer) -> None:
        """Hundreds of channels: messages of the first ones come before the last ones are confirmed."""
        names = [f"many.{number}" for number in range(500)]
        halt = threading.Event()

        def publish() -> None:
            with server.client() as client:
                while not halt.is_set():
                    client.publish(names[0], b"x")

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            for _ in range(5):
                transport = opened(transport_for(server.url, ",".join(names)))
                assert len(take(transport, 50)) == 50
                transport.close()
        finally:
            halt.set()
            publisher.join()

    def test_wake_ends_a_wait(self, server: RedisServer) -> None:
        transport = opened(transport_for(server.url, "silence"))
        transport.wake()
        started = time.monotonic()
        assert not transport.receive(1, 600)
        assert time.monotonic() - started < 60
        assert transport.is_empty() is None
        transport.close()


class TestPlaces:
    def test_over_tls(self, server: RedisServer, client: Any) -> None:
        assert server.certs is not None
        tls = Tls(ca=str(server.certs.ca))
        transport = opened(transport_for(server.tls_url, "secret", tls=tls))
        for number in range(300):
            client.publish("secret", b"%d" % number * 1000)
        bodies = [delivery.body for _ in range(100) for delivery in take(transport, 3)]
        assert bodies == [b"%d" % number * 1000 for number in range(300)]
        transport.stop(5.0)
        transport.close()

    def test_any_node_of_a_cluster_hears_all(self, redis_cluster: Cluster) -> None:
        transport = opened(transport_for(redis_cluster.url, "everywhere"))
        with redis_cluster.streams.client() as client:
            client.publish("everywhere", b"heard")
        (heard,) = take(transport, 1)
        assert heard.body == b"heard"
        transport.close()

    def test_the_sentinels_master(self, redis_sentinels: Sentinels) -> None:
        transport = opened(transport_for(redis_sentinels.url, "ruled"))
        with redis_sentinels.master.client() as client:
            client.publish("ruled", b"heard")
        (heard,) = take(transport, 1)
        assert heard.body == b"heard"
        transport.close()


class TestLosses:
    def test_S10_a_killed_subscriber_is_back_within_two_seconds_and_the_gap_is_counted(
        self, server: RedisServer, client: Any
    ) -> None:
        gate = Gate()
        gate.free.set()
        running = start(gate.sync, transport_for(server.url, "gap"))
        for _ in range(3):
            assert client.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
            wait_for(lambda: listeners(client, "gap") == 0, PATIENCE, "the loss", every=0.001)
            lost = time.monotonic()
            wait_for(lambda: listeners(client, "gap") == 1, PATIENCE, "a subscriber", every=0.01)
            assert time.monotonic() - lost < 2.0
            wait_for(lambda: client.publish("gap", b"x") and gate.ended, PATIENCE, "a message")
            gate.ended.clear()
        ending = running.stop()
        assert (ending.code, ending.counters.notices[MAYBE_LOST]) == (Exit.DONE, 3)
        assert "lost" in running.notebook.texts(MAYBE_LOST)[0]

    def test_what_had_come_before_a_loss_is_handled(self, server: RedisServer, client: Any) -> None:
        """The syncer is busy, the socket is full, the server hangs up: nothing of it is thrown away."""
        gate = Gate()
        transport = transport_for(server.url, "kept")
        running = start(gate.sync, transport, concurrency=1, prefetch=2)
        for number in range(200):
            client.publish("kept", b"%d" % number)
        running.wait_for(lambda: gate.started, "the first at work")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        running.wait_for(lambda: running.notebook.facts(MAYBE_LOST), "a new subscription")
        assert "too slowly" in running.notebook.texts(events.LOST)[0]
        client.publish("kept", b"after")
        gate.free.set()
        running.wait_for(lambda: len(gate.ended) == 201, "all of them")
        assert gate.ended == [*(b"%d" % number for number in range(200)), b"after"]
        ending = running.stop()
        assert (ending.code, ending.counters.notices) == (Exit.DONE, {MAYBE_LOST: 1})

    def test_D_7_a_slow_syncer_stays_bounded_and_the_server_drops_it(self, private_redis: StartRedis) -> None:
        """X7: 200 MB are published while one syncer works: what waits here is what the sockets hold."""
        server = private_redis(settings={"client-output-buffer-limit": "pubsub 4mb 4mb 1"})
        gate = Gate()
        running = start(gate.sync, transport_for(server.url, "flood"), concurrency=1, prefetch=2)
        before = resident()
        with server.client() as client:
            for _ in range(200):
                client.publish("flood", b"x" * 1_000_000)
        assert resident() - before < 40_000_000
        gate.free.set()
        running.wait_for(lambda: running.notebook.facts(MAYBE_LOST), "being dropped, and coming back")
        assert "too slowly" in running.notebook.texts(events.LOST)[0]
        ending = running.stop()
        assert (ending.code, ending.counters.received) == (Exit.DONE, len(gate.ended))
        assert 2 < len(gate.ended) < 100

    def test_losses_one_after_the_other_do_not_pile_up(self, server: RedisServer, client: Any) -> None:
        """What came on one lost connection is kept; more is told as lost."""
        transport = transport_for(server.url, "again")
        opened(transport)
        for number in range(3):
            client.publish("again", b"%d" % number)
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            until_lost(transport, room=0)
            opened(transport)
        told = [(notice.event, notice.facts["count"]) for notice in transport.notices]
        assert told.count((UNFINISHED, 1)) == 2
        assert [delivery.body for delivery in take(transport, 1)] == [b"0"]
        transport.close()

    def test_a_silent_server_is_asked_and_a_dead_one_noticed(
        self, server: RedisServer, client: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """F11: a connection into a black hole looks like a channel in which nothing happens."""
        monkeypatch.setattr(subscription, "QUIET", 0.3)
        monkeypatch.setattr(subscription, "ANSWER_TIMEOUT", 1.0)
        with Proxy(server.url) as proxy:
            transport = opened(transport_for(proxy.url_for(server.url), "hole"))
            for _ in range(30):
                assert not transport.receive(1, 0.1)  # it answers
            client.publish("hole", b"1")
            assert len(take(transport, 1)) == 1
            proxy.set(Mode.BLACK_HOLE)
            assert "no answer in time" in until_lost(transport, room=1)
            transport.close()


class TestEndings:
    def test_D_11_a_stop_finishes_what_had_arrived(self, server: RedisServer, client: Any) -> None:
        """Nobody else has it: given up, it would be lost."""
        transport = transport_for(server.url, "stop")
        gate = Gate()
        running = start(gate.sync, transport, concurrency=2, prefetch=4)
        for number in range(500):
            client.publish("stop", b"%d" % number)
        running.wait_for(lambda: len(gate.started) == 2, "two at work")
        running.runner.stop("the test says so")
        wait_for(lambda: listeners(client, "stop") == 0, PATIENCE, "unsubscribing")
        client.publish("stop", b"too late")
        gate.free.set()
        ending = running.ending
        assert (ending.code, ending.counters.notices) == (Exit.DONE, {})
        assert sorted(gate.ended, key=int) == [b"%d" % number for number in range(500)]

    def test_what_a_deadline_cuts_off_is_counted_as_lost(self, server: RedisServer, client: Any) -> None:
        transport = opened(transport_for(server.url, "cut"))
        for number in range(5):
            client.publish("cut", b"%d" % number)
        first, second = take(transport, 2)
        transport.stop(1.0)
        transport.settle([verdict(first, Action.ACK), verdict(second, Action.LEAVE)])
        transport.close(Closing.DEADLINE)
        (notice,) = transport.notices
        assert (notice.event, notice.facts["count"]) == (UNFINISHED, 4)

    def test_a_failed_message_is_dropped_and_the_reason_says_why(
        self, server: RedisServer, client: Any
    ) -> None:
        """S10: no second try, whatever the syncer asks for, and nothing waits for one."""
        calls: list[bytes] = []

        def fails(message: bytes) -> bool:
            calls.append(message)
            if message == b"later":
                raise Retry(after=3600)
            return False

        running = start(fails, transport_for(server.url, "fail"), prefetch=1)
        client.publish("fail", b"no")
        client.publish("fail", b"later")
        running.wait_for(lambda: len(running.notebook.settled_) == 2, "both")
        ending = running.stop()
        assert (ending.code, calls, ending.counters.dropped) == (Exit.DONE, [b"no", b"later"], 2)
        for settlement in running.notebook.settled_:
            assert settlement.verdict.action is Action.DROP
            assert "nobody keeps this message" in settlement.verdict.reason


class TestRefused:
    def test_an_empty_name(self, server: RedisServer) -> None:
        with pytest.raises(SettingError, match="empty channel name"):
            transport_for(server.url, "one,,two")

    def test_a_user_without_the_permission(self, private_redis: StartRedis) -> None:
        """H2: one line, and the exit code of a configuration error."""
        server = private_redis(users={"deaf": "on >pw ~* resetchannels &allowed +@all"})
        transport = transport_for(server.url_as("deaf", "pw"), "forbidden")
        with pytest.raises(BrokerRefused, match="may not"):
            opened(transport)
        transport.close()
        allowed = opened(transport_for(server.url_as("deaf", "pw"), "allowed"))
        allowed.close()

    def test_a_user_that_may_only_subscribe(self, private_redis: StartRedis) -> None:
        """The fewest permissions: no PING and no CLIENT is needed for anything but noticing a dead peer."""
        rules = "on >pw resetkeys allchannels -@all +subscribe +psubscribe +unsubscribe +punsubscribe"
        server = private_redis(users={"least": rules})
        transport = opened(transport_for(server.url_as("least", "pw"), "a,b*"))
        with server.client() as client:
            client.publish("a", b"1")
            client.publish("bee", b"2")
        assert len(take(transport, 2)) == 2
        transport.stop(5.0)
        transport.close()


def resident() -> int:
    """The bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
