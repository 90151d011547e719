"""F9 and F12: long syncers do not cost the connection, and a frozen consumer comes back to a new one."""

from __future__ import annotations

import signal

import pytest

from support.checker import AtRabbit, NewCampaign
from support.fixtures import StartChronicle
from support.waiting import wait_for

pytestmark = pytest.mark.timed

HEARTBEAT = 2
LONG = 3 * HEARTBEAT + 1  # seconds


def test_a_syncer_of_three_heartbeats_keeps_its_connection(
    on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F9, RB5: plain, async, and async that blocks its loop; no reconnect and no repeat."""
    running = []
    for syncer in ("sync", "tasked", "blocking"):
        campaign = on_rabbit(f"long-{syncer}")
        campaign.send(1, seconds=LONG)
        campaign.send(3)
        url = f"{campaign.place.url}?heartbeat={HEARTBEAT}"
        running.append((campaign, campaign.consume(chronicle, "--until-empty", syncer=syncer, url=url)))
    for campaign, process in running:
        assert process.wait(120) == 0
        assert not process.lines("connection.lost")
        report = campaign.report()
        assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)


def test_a_frozen_consumer_reconnects_and_acknowledges_nothing_stale(
    on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F12, RB2: the broker has given its messages to somebody else meanwhile."""
    frozen = on_rabbit("frozen")
    assert isinstance(frozen.place, AtRabbit)
    queues, gate = frozen.place.queues, frozen.folder / "gate"
    url = f"{frozen.place.url}?heartbeat={HEARTBEAT}"
    frozen.send(2, gate=str(gate))
    process = frozen.consume(chronicle, "--concurrency", "2", "--prefetch", "2", url=url)
    frozen.wait_started(2)
    process.signal(signal.SIGSTOP)
    wait_for(lambda: queues.consumers(frozen.queue) == 0, 60, "the broker to miss its heartbeats", every=0.2)
    assert len(queues.get_all(frozen.queue)) == 2, "both messages are free for somebody else"
    frozen.send(2, seconds=600)
    gate.touch()  # the frozen ones can finish the moment they thaw
    process.signal(signal.SIGCONT)
    process.wait_for_line("connection.lost")
    frozen.wait_started(4)
    frozen.wait_ended(2)
    process.kill()
    report = frozen.report()
    assert (report.lost, sorted(report.queued), report.repeats) == ([], [2, 3], 0)
