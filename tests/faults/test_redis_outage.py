"""F4, F11, S-c and S-d: a Redis server stops, dies, freezes, forgets everything; consumers outlive it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

import pytest

from support import proc
from support.checker import Campaign, NewCampaign, wait_for_lines
from support.fixtures import StartChronicle, StartRedis
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.waiting import wait_for

CONCURRENCY: Final = 4
OPTIONS: Final = (
    "--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY),
    "--reconnect-initial", "50ms", "--reconnect-max", "500ms", "--claim-idle", "2s",
)  # fmt: skip
SOON: Final = 5.0


@pytest.fixture(scope="module")
def server(private_redis: StartRedis) -> RedisServer:
    """It forgets nothing that it has confirmed."""
    return private_redis(durable=True)


@pytest.fixture(params=["sync", "tasked"])
def syncer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def at_work(campaign: Campaign, chronicle: StartChronicle, syncer: str = "sync") -> ChronicleProcess:
    """A consumer in the middle of two hundred messages."""
    process = campaign.consume(chronicle, *OPTIONS, syncer=syncer)
    process.wait_for_line("consumer.ready")
    campaign.send(200, seconds=0.02)
    campaign.wait_ended(20)
    return process


def finish(campaign: Campaign, process: ChronicleProcess, server: RedisServer) -> None:
    """Let it come back and settle everything, and stop it."""
    campaign.wait_all_ended()
    wait_for(lambda: not server.streams.pending(campaign.queue), 30, "everything acknowledged")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def assert_nothing_lost(campaign: Campaign, repeats: int) -> None:
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= repeats


def assert_one_line_per_try(process: ChronicleProcess) -> None:
    """Every complaint is the loss, a try with a number of its own, or an acknowledgement sent again."""
    complaints = [line for line in process.lines() if line["level"] not in ("debug", "info")]
    known = {"connection.lost", "connection.retry", "redis.ack_retried", "redis.ack_missed"}
    assert {line["event"] for line in complaints} <= known
    rounds: list[list[int]] = []
    for line in process.lines():
        if line["event"] == "connection.lost":
            rounds.append([])
        elif line["event"] == "connection.retry":
            rounds[-1].append(line["attempt"])
    assert any(rounds)
    for tries in rounds:
        assert len(tries) == len(set(tries)), tries


@pytest.mark.parametrize("end", [RedisServer.stop, RedisServer.kill], ids=["stopped", "killed"])
def test_consumers_outlive_a_server_that_keeps_its_data(
    server: RedisServer,
    on_redis: NewCampaign,
    chronicle: StartChronicle,
    syncer: str,
    end: Callable[[RedisServer], None],
) -> None:
    """F4, R-001-2: alive, one line per try, then back at work; what was in work is not begun again."""
    campaign = on_redis("outage", server=server)
    process = at_work(campaign, chronicle, syncer)
    end(server)
    wait_for_lines(process, "connection.retry", 3)
    assert process.running
    server.start()
    wait_for_lines(process, "consumer.ready", 2)  # a stop before that leaves acknowledgements unconfirmed
    finish(campaign, process, server)
    assert_one_line_per_try(process)
    assert_nothing_lost(campaign, repeats=0)


def test_it_consumes_again_soon_after_the_server_is_back(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """F4: no later than the longest pause between two tries, and a moment."""
    campaign = on_redis("back", server=server)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    server.stop()
    wait_for_lines(process, "connection.retry", 6)
    server.start()
    campaign.send(1)
    began = time.monotonic()
    campaign.wait_all_ended()
    assert time.monotonic() - began < SOON
    finish(campaign, process, server)


def test_a_server_that_lost_its_last_second_loses_nothing_else(
    private_redis: StartRedis, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-d, S9: whatever the server still has is handled; it may have forgotten a second of acks."""
    server = private_redis(settings={"appendonly": "yes", "appendfsync": "everysec"})
    campaign = on_redis("everysec", server=server)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    for _ in range(3):
        campaign.send(60, seconds=0.02)
        time.sleep(0.4)
        before = len(process.lines("consumer.ready"))
        server.kill()
        server.start()
        campaign.survived(server.streams.bodies(campaign.queue))
        wait_for_lines(process, "consumer.ready", before + 1)
    finish(campaign, process, server)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


def test_a_server_that_lost_everything_is_consumed_from_anew(
    private_redis: StartRedis, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S7: a cache that restarts empty has neither stream nor group; whatever comes later is handled."""
    server = private_redis()
    campaign = on_redis("cache", server=server)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    campaign.send(3)
    campaign.wait_all_ended()
    server.kill()
    server.start()
    campaign.send(3)
    campaign.wait_all_ended()
    finish(campaign, process, server)
    assert_nothing_lost(campaign, repeats=0)


@pytest.mark.timed
def test_a_frozen_server_is_noticed_and_survived(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """F11, S2: its connections stay open and silent; nothing that was in work is begun again."""
    campaign = on_redis("frozen", server=server)
    process = at_work(campaign, chronicle)
    server.freeze()
    before = proc.cpu_seconds(process.pid)
    try:
        process.wait_for_line("connection.lost", 30)
        assert process.running
        assert proc.cpu_seconds(process.pid) - before < 1, "it spins while it waits"
    finally:
        server.thaw()
    finish(campaign, process, server)
    assert_nothing_lost(campaign, repeats=0)


@pytest.mark.parametrize(
    "options", [(), ("--no-group", "--cursor", "{stream}.cursor")], ids=["group", "cursor"]
)
def test_a_stop_whose_acknowledgements_were_not_confirmed_is_not_a_success(
    private_redis: StartRedis, on_redis: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...]
) -> None:
    """D-13, D-12: the three messages are finished here and may come again: exit code 4, with how many."""
    server = private_redis()
    campaign = on_redis("unconfirmed", server=server)
    gate = campaign.folder / "gate"
    campaign.send(3, gate=str(gate))
    chosen = [option.format(stream=campaign.queue) for option in options]
    process = campaign.consume(chronicle, "--concurrency", "3", *chosen)
    campaign.wait_started(3)
    server.freeze()
    try:
        gate.touch()
        campaign.wait_all_ended()
        wait_for(lambda: len(process.lines("message.acked")) == 3, SOON, "three settled")
        process.signal(signal.SIGTERM)
        assert process.wait() == 4
    finally:
        server.thaw()
    (last,) = process.lines("consumer.stopped")
    assert "3 finished messages may come again" in last["text"]


@pytest.mark.timed
def test_an_idle_consumer_costs_little(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """R-001-26: it listens, renews its name and looks for the dead, and that is all."""
    campaign = on_redis("idle", server=server)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    campaign.send(1)
    campaign.wait_all_ended()
    before = proc.cpu_seconds(process.pid)
    time.sleep(4)
    assert proc.cpu_seconds(process.pid) - before < 0.4
    finish(campaign, process, server)


def delete_all(server: RedisServer, _stream: str) -> None:
    with server.client() as client:
        client.flushall()


def delete_stream(server: RedisServer, stream: str) -> None:
    server.streams.delete(stream)


def delete_group(server: RedisServer, stream: str) -> None:
    with server.client() as client:
        client.xgroup_destroy(stream, "chronicle")


@pytest.mark.parametrize("delete", [delete_all, delete_stream, delete_group])
def test_what_is_added_after_a_deletion_is_handled_soon(
    server: RedisServer,
    on_redis: NewCampaign,
    chronicle: StartChronicle,
    delete: Callable[[RedisServer, str], None],
) -> None:
    """S-c, S7: an error that says so, a group made again, and every later entry handled."""
    campaign = on_redis("vanished", server=server)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    campaign.send(10)
    campaign.wait_all_ended()
    for _ in range(2):
        wait_for(lambda: not server.streams.pending(campaign.queue), 30, "everything acknowledged")
        delete(server, campaign.queue)
        campaign.send(10)
        began = time.monotonic()
        campaign.wait_all_ended()
        assert time.monotonic() - began < SOON
    (told, *more) = process.lines("redis.group_recreated")
    assert (told["level"], len(more)) == ("error", 1)
    finish(campaign, process, server)
    # A group that begins again with the oldest entry repeats what the old one had settled.
    repeats = 30 if delete is delete_group else 0
    assert_nothing_lost(campaign, repeats)


def test_a_deletion_in_the_middle_of_work_neither_ends_nor_spins(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-c, S7: acknowledgements for what is gone are told, not retried forever."""
    campaign = on_redis("spin", server=server)
    process = at_work(campaign, chronicle)
    delete_all(server, campaign.queue)
    handled = set(campaign.started())
    time.sleep(1.5)
    assert process.running
    assert len(process.lines()) < 1500, "it spins"
    campaign.sent &= handled | set(campaign.started())
    campaign.send(1)
    (number,) = [max(campaign.sent)]
    wait_for(lambda: number in campaign.ended(), 30, "the entry that was added afterwards")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
