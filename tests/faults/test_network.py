"""F5, F11, F14 and RB13: the way to the broker breaks, goes silent, crawls, or carries nonsense."""

from __future__ import annotations

import signal
import time
from random import Random

import pytest

from support import proc
from support.amqp import method, spec
from support.checker import NewCampaign, wait_for_lines
from support.fixtures import StartChronicle
from support.garbler import Garbler
from support.proxy import Mode, Proxy
from support.waiting import wait_for

CONCURRENCY = 4
BOUNDED = ("--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY))
QUICK = ("--reconnect-initial", "50ms", "--reconnect-max", "300ms")
CUTS = 15


def test_resets_lose_nothing_and_leak_nothing(
    on_rabbit: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """F5, RB2: repeats only of what was handed out, and the same threads and files after every reset."""
    campaign = on_rabbit("reset")
    with Proxy(campaign.place.url) as proxy:
        process = campaign.consume(chronicle, *BOUNDED, *QUICK, url=proxy.url_for(campaign.place.url))
        process.wait_for_line("consumer.ready")
        campaign.send(10)
        campaign.wait_all_ended()
        before = (proc.threads(process.pid), proc.open_files(process.pid))
        for cut in range(1, CUTS + 1):
            campaign.send(40, seconds=0.02)
            time.sleep(luck.uniform(0.2, 1.0))
            # It may be between two connections; a cut that hits nothing is no cut.
            wait_for(proxy.cut, 30, "a connection to cut")
            wait_for_lines(process, "connection.lost", cut)
        campaign.wait_all_ended()
        wait_for(
            lambda: (proc.threads(process.pid), proc.open_files(process.pid)) == before,
            30,
            f"the threads and files there were before: {before}",
        )
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= CONCURRENCY * CUTS
    assert process.lines("consumer.stopped")[0]["reconnects"] == CUTS


def test_a_black_hole_is_noticed_and_survived(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """F11, RB5, X4: silence is noticed by its heartbeats; a stop or a fatal answer in it does not hang."""
    campaign, stuck, fatal = on_rabbit("silence"), on_rabbit("silence-stopped"), on_rabbit("silence-fatal")
    gate = fatal.folder / "gate"
    arguments = "?heartbeat=2&connection_timeout=1000"
    with Proxy(campaign.place.url) as proxy:
        url = proxy.url_for(campaign.place.url) + arguments
        process = campaign.consume(chronicle, *BOUNDED, *QUICK, url=url)
        stopped = stuck.consume(chronicle, *BOUNDED, "--drain-timeout", "1s", url=url)
        failed = fatal.consume(chronicle, *BOUNDED, url=url)
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
        assert stopped.wait(60) == 4
        assert failed.wait(60) == 1
        process.wait_for_line("connection.lost", 60)
        assert process.running
        proxy.set(Mode.PASS)
        campaign.wait_all_ended()
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert stuck.report().queued == (0,)
    assert fatal.report().queued == (0,)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= CONCURRENCY


def test_a_stop_while_the_broker_is_away_is_obeyed(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """F4, D-11: with nothing running it is over at once, with a stuck syncer at the drain's deadline."""
    idle, stuck = on_rabbit("away"), on_rabbit("away-stuck")
    stuck.send(1, seconds=600)
    with Proxy(idle.place.url) as proxy:
        url = proxy.url_for(idle.place.url)
        running = [
            campaign.consume(chronicle, *QUICK, "--drain-timeout", "1s", url=url)
            for campaign in (idle, stuck)
        ]
        stuck.wait_started(1)
        running[0].wait_for_line("consumer.ready")
        proxy.refuse()
        proxy.cut()
        for process in running:
            wait_for_lines(process, "connection.retry", 2)
            process.signal(signal.SIGTERM)
        assert [process.wait(30) for process in running] == [0, 4]
    assert stuck.report().queued == (0,)


def test_a_stop_in_the_middle_of_a_login_is_obeyed(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """F11: a broker that takes the connection and never answers keeps nobody."""
    campaign = on_rabbit("login")
    campaign.send(1)
    with Proxy(campaign.place.url) as proxy:
        proxy.set(Mode.DROP_REPLIES)
        process = campaign.consume(chronicle, url=proxy.url_for(campaign.place.url))
        wait_for(lambda: proxy.connections, 30, "a connection")
        process.signal(signal.SIGTERM)
        assert process.wait(60) == 0
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (0,))


def test_single_bytes_and_latency_change_nothing(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """F14: slow pieces are neither a lost connection nor another message."""
    campaign = on_rabbit("slices")
    with Proxy(campaign.place.url) as slow, Proxy(slow.url_for(campaign.place.url)) as sliced:
        slow.set(Mode.DELAY)
        sliced.set(Mode.SLICE)
        campaign.send(20, padding="x" * 2000)
        url = sliced.url_for(campaign.place.url) + "?heartbeat=2"
        process = campaign.consume(chronicle, *BOUNDED, "--max-messages", "20", url=url)
        assert process.wait(120) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)
    assert not process.lines("connection.lost")


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"\xff" * 64, id="no frame"),
        pytest.param(method(1, spec.Basic.QosOk())[:-1] + b"\0", id="a frame without its end"),
        pytest.param(b"\x01\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff\xce", id="an unknown method"),
    ],
)
def test_an_unreadable_broker_is_given_up(
    on_rabbit: NewCampaign, chronicle: StartChronicle, noise: bytes
) -> None:
    """RB13: the same nonsense after every reconnect ends the process with a clear line, soon."""
    campaign = on_rabbit("garbled")
    campaign.send(3)
    with Garbler(campaign.place.url, lambda _channel: [noise]) as garbler:
        process = campaign.consume(chronicle, *QUICK, url=garbler.url)
        assert process.wait(60) == 1
        assert garbler.connections < 20
    (fatal,) = process.lines("connection.unreadable")
    assert "cannot be read" in fatal["text"]
    report = campaign.report()
    assert (report.lost, sorted(report.queued)) == ([], [0, 1, 2])
