"""S-a, S-b, F5, F11 and F14 at Redis: the way to the server breaks, loses replies, goes silent, or crawls."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from support import proc
from support.checker import AtRedis, Campaign, NewCampaign, wait_for_lines
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.redis_server import RedisServer
from support.streams import Streams
from support.waiting import wait_for

CONCURRENCY: Final = 4
BOUNDED: Final = ("--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY))
QUICK: Final = ("--reconnect-initial", "10ms", "--reconnect-max", "100ms")


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as proxy:
        yield proxy


def consume(
    campaign: Campaign, start: StartChronicle, proxy: Proxy, *options: str, syncer: str = "sync"
) -> ChronicleProcess:
    url = proxy.url_for(campaign.place.url)
    return campaign.consume(start, *BOUNDED, *QUICK, *options, syncer=syncer, url=url)


def finish(campaign: Campaign, process: ChronicleProcess) -> None:
    """Everything is handled once and acknowledged, and the consumer stops in good order."""
    campaign.wait_all_ended()
    wait_for(lambda: not streams_of(campaign).pending(campaign.queue), 30, "everything acknowledged")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


def streams_of(campaign: Campaign) -> Streams:
    assert isinstance(campaign.place, AtRedis)
    return campaign.place.streams


def test_a_hundred_lost_replies_to_reads_lose_nothing(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """S-a, S3: the entries were handed out, and nobody got them: they are read again after each reconnect."""
    campaign = on_redis("unread")
    process = consume(campaign, chronicle, proxy)
    process.wait_for_line("consumer.ready")
    proxy.lose_replies(b"XREADGROUP", times=100)
    deadline = time.monotonic() + 90
    while proxy.lost < 100:
        assert time.monotonic() < deadline, f"only {proxy.lost} reads in 90 s"
        campaign.send(2)
        time.sleep(0.05)
    finish(campaign, process)
    assert process.lines("consumer.stopped")[0]["reconnects"] == 100


@pytest.mark.parametrize("word", [b"XACK", b"XREADGROUP"])
def test_a_lost_reply_repeats_no_work(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy, word: bytes
) -> None:
    """S3: a verdict outlives its connection, so what was finished is acknowledged and not begun again."""
    campaign = on_redis("acked")
    process = consume(campaign, chronicle, proxy)
    process.wait_for_line("consumer.ready")
    for lost in range(1, 6):
        proxy.lose_replies(word)
        campaign.send(12, seconds=0.03)
        wait_for(lambda: proxy.lost >= lost, 30, f"a lost reply to {word!r}")  # noqa: B023
        campaign.wait_all_ended()
    finish(campaign, process)
    assert set(campaign.started().values()) == {1}


def test_a_dead_letter_whose_reply_is_lost_is_written_once(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """S6: the script is sent again, and finds that there is nothing left to do."""
    campaign = on_redis("dead")
    process = consume(campaign, chronicle, proxy, "--on-failure", "dead-letter")
    process.wait_for_line("consumer.ready")
    for lost in range(1, 4):
        proxy.lose_replies(b".dlq")
        campaign.send(1, answer="false")
        campaign.send(1)
        wait_for(lambda: proxy.lost >= lost, 30, "a lost reply")  # noqa: B023
        wait_for(lambda: streams_of(campaign).length(campaign.dead) == lost, 30, "the dead letter")  # noqa: B023
    wait_for(lambda: not streams_of(campaign).pending(campaign.queue), 30, "everything settled")
    assert streams_of(campaign).length(campaign.dead) == 3
    # A stop before the reconnect would end without the answer, and say so with exit code 4.
    wait_for(lambda: len(process.lines("message.dead_lettered")) == 3, 30, "three dead letters to be told")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)
    assert report.dead == {0, 2, 4}
    assert process.lines("consumer.stopped")[0]["dead_lettered"] == 3


def test_a_delayed_retry_whose_reply_is_lost_is_scheduled_once(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """S6: otherwise the message would come twice."""
    campaign = on_redis("retried")
    options = ("--on-failure", "retry:3", "--retry-delay", "300ms")
    process = consume(campaign, chronicle, proxy, *options, syncer="patient")
    process.wait_for_line("consumer.ready")
    for lost in range(1, 4):
        proxy.lose_replies(b"x-chronicle-attempts")
        campaign.send(1, tries=2)
        wait_for(lambda: proxy.lost >= lost, 30, "a lost reply")  # noqa: B023
    campaign.wait_all_ended()
    time.sleep(0.6)  # a second one would be due by now
    finish(campaign, process)
    assert set(campaign.started().values()) == {2}


def test_killed_connections_lose_nothing(
    on_redis: NewCampaign, chronicle: StartChronicle, redis_server: RedisServer
) -> None:
    """S-b: the server hangs up on everybody again and again."""
    campaign = on_redis("kicked")
    process = campaign.consume(chronicle, *BOUNDED, *QUICK)
    process.wait_for_line("consumer.ready")
    for kill in range(1, 16):
        campaign.send(20, seconds=0.02)
        time.sleep(0.15)
        wait_for(redis_server.disconnect_everybody, 30, "a connection to end")
        wait_for_lines(process, "connection.lost", kill)
    finish(campaign, process)
    assert set(campaign.started().values()) == {1}, "a verdict outlives its connection"


def test_resets_lose_nothing_and_leak_nothing(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy, luck: Random
) -> None:
    """F5: no work is repeated, and the same threads and files are there after every reset."""
    cuts = 15
    campaign = on_redis("reset")
    process = consume(campaign, chronicle, proxy)
    process.wait_for_line("consumer.ready")
    campaign.send(10)
    campaign.wait_all_ended()
    before = (proc.threads(process.pid), proc.open_files(process.pid))
    for cut in range(1, cuts + 1):
        campaign.send(40, seconds=0.02)
        time.sleep(luck.uniform(0.1, 0.5))
        # It may be between two connections; a cut that hits nothing is no cut.
        wait_for(proxy.cut, 30, "a connection to cut")
        wait_for_lines(process, "connection.lost", cut)
    campaign.wait_all_ended()
    wait_for(
        lambda: (proc.threads(process.pid), proc.open_files(process.pid)) == before,
        30,
        f"the threads and files there were before: {before}",
    )
    finish(campaign, process)
    assert set(campaign.started().values()) == {1}
    assert process.lines("consumer.stopped")[0]["reconnects"] == cuts


@pytest.mark.timed
def test_a_black_hole_is_noticed_and_survived(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """F11, X4: silence is noticed; a stop or a fatal answer in it does not hang."""
    campaign, stuck, fatal = on_redis("silence"), on_redis("silence-stopped"), on_redis("silence-fatal")
    gate = fatal.folder / "gate"
    process = consume(campaign, chronicle, proxy)
    stopped = consume(stuck, chronicle, proxy, "--drain-timeout", "1s")
    failed = consume(fatal, chronicle, proxy)
    campaign.send(10)
    stuck.send(1, seconds=600)
    fatal.send(1, gate=str(gate), answer="none")
    campaign.wait_all_ended()
    stuck.wait_started(1)
    fatal.wait_started(1)

    proxy.set(Mode.BLACK_HOLE)
    campaign.send(10)
    stopped.signal(signal.SIGTERM)
    gate.touch()
    assert stopped.wait(10) == 4
    assert failed.wait(10) == 1
    process.wait_for_line("connection.lost", 60)
    assert process.running
    proxy.set(Mode.PASS)
    finish(campaign, process)
    assert set(campaign.started().values()) == {1}
    assert stuck.report().queued == (0,)
    assert fatal.report().queued == (0,)


def test_a_stop_while_the_server_is_away_is_obeyed(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """F4, D-11: with nothing running it is over at once, with a stuck syncer at the drain's deadline."""
    idle, stuck = on_redis("away"), on_redis("away-stuck")
    stuck.send(1, seconds=600)
    running = [consume(campaign, chronicle, proxy, "--drain-timeout", "1s") for campaign in (idle, stuck)]
    stuck.wait_started(1)
    running[0].wait_for_line("consumer.ready")
    proxy.refuse()
    proxy.cut()
    for process in running:
        wait_for_lines(process, "connection.retry", 2)
        process.signal(signal.SIGTERM)
    assert [process.wait(30) for process in running] == [0, 4]
    assert stuck.report().queued == (0,)


def test_a_stop_in_the_middle_of_a_login_is_obeyed(
    on_redis: NewCampaign, chronicle: StartChronicle, proxy: Proxy
) -> None:
    """F11: a server that takes the connection and never answers keeps nobody."""
    campaign = on_redis("login")
    campaign.send(1)
    proxy.set(Mode.DROP_REPLIES)
    process = consume(campaign, chronicle, proxy)
    wait_for(lambda: proxy.connections, 30, "a connection")
    process.signal(signal.SIGTERM)
    assert process.wait(15) == 0
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (0,))


def test_single_bytes_and_latency_change_nothing(on_redis: NewCampaign, chronicle: StartChronicle) -> None:
    """F14: slow pieces are neither a lost connection nor another message."""
    campaign = on_redis("slices")
    with Proxy(campaign.place.url) as slow, Proxy(slow.url_for(campaign.place.url)) as sliced:
        slow.set(Mode.DELAY)
        sliced.set(Mode.SLICE)
        campaign.send(20, padding="x" * 2000)
        url = sliced.url_for(campaign.place.url)
        process = campaign.consume(chronicle, *BOUNDED, "--max-messages", "20", url=url)
        assert process.wait(120) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)
    assert not process.lines("connection.lost")
