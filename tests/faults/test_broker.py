"""F4, F10 and F11: the broker stops, dies, freezes or runs out of memory; consumers outlive it."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from support.checker import Campaign, NewCampaign, wait_for_lines
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.rabbit import RabbitNode
from support.waiting import wait_for

CONCURRENCY = 4
OPTIONS = ("--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY), "--reconnect-max", "1s")
# A node needs a quarter of a minute to start, and much longer on a busy machine.
PATIENCE = 180.0

Running = Sequence[tuple[Campaign, ChronicleProcess]]


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


@pytest.fixture
def running(node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle) -> Running:
    """A plain syncer on a classic queue and an async one on a quorum queue, both with work to do."""
    campaigns = on_rabbit("classic"), on_rabbit("quorum", quorum=True)
    url = f"{node.url}?heartbeat=2&connection_timeout=1000"
    found = [
        (campaign, campaign.consume(chronicle, *OPTIONS, syncer=syncer, url=url))
        for campaign, syncer in zip(campaigns, ("sync", "tasked"), strict=True)
    ]
    for campaign, process in found:
        process.wait_for_line("consumer.ready")
        campaign.send(200, seconds=0.02)
        campaign.wait_ended(20)
    return found


def test_consumers_outlive_a_restart_of_the_broker(node: RabbitNode, running: Running) -> None:
    """F4, RB19: alive, one line per try, then back at work; repeats only of what was handed out."""
    node.stop_app()
    for _, process in running:
        wait_for_lines(process, "connection.retry", 3, PATIENCE)
        assert process.running
    node.start_app()
    finish(node, running)
    for campaign, process in running:
        assert_one_line_per_try(process)
        assert_nothing_lost(campaign, repeats=handed_out(process))


def test_consumers_outlive_a_killed_broker(node: RabbitNode, running: Running) -> None:
    """F4: what the broker had confirmed is handled; how many acks it forgot is its own affair."""
    node.kill()
    node.start()
    finish(node, running)
    for campaign, process in running:
        assert_one_line_per_try(process)
        assert_nothing_lost(campaign, repeats=len(campaign.sent))


def test_a_frozen_broker_is_noticed_and_survived(node: RabbitNode, running: Running) -> None:
    """F11, RB5: its connections stay open and silent; the heartbeats tell."""
    node.freeze()
    try:
        for _, process in running:
            process.wait_for_line("connection.lost", PATIENCE)
            assert process.running
    finally:
        node.thaw()
    finish(node, running)
    for campaign, process in running:
        assert_nothing_lost(campaign, repeats=handed_out(process))


def test_consuming_goes_on_under_a_memory_alarm(
    node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F10, RB6: the broker stops those who publish; chronicle only acknowledges."""
    campaign = on_rabbit("alarm")
    campaign.send(100)
    with node.memory_alarm():
        process = campaign.consume(chronicle, *OPTIONS, "--until-empty")
        assert process.wait(PATIENCE) == 0
        assert not process.lines("connection.lost")
        assert node.counts(campaign.queue) == (0, 0)
    assert_nothing_lost(campaign, repeats=0)


def finish(node: RabbitNode, running: Running) -> None:
    """Let them come back and handle everything, also what the broker delivers again, and stop them."""
    for campaign, process in running:
        campaign.wait_all_ended(PATIENCE)
        wait_for(lambda: node.counts(campaign.queue) == (0, 0), PATIENCE, "the queue to be empty")  # noqa: B023
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def handed_out(process: ChronicleProcess) -> int:
    """The most that can have been taken back from it, over all its losses."""
    return CONCURRENCY * len(process.lines("connection.lost"))


def assert_nothing_lost(campaign: Campaign, repeats: int) -> None:
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= repeats


def assert_one_line_per_try(process: ChronicleProcess) -> None:
    """Every complaint is the loss, a try with a number of its own, or a result that came too late."""
    told = [line for line in process.lines() if line["level"] not in ("debug", "info")]
    complaints = [line for line in told if line["event"] != "queue.dead_letters_unknown"]
    assert {line["event"] for line in complaints} <= {"connection.lost", "connection.retry", "message.stale"}
    rounds: list[list[int]] = []
    for line in process.lines():
        if line["event"] == "connection.lost":
            rounds.append([])
        elif line["event"] == "connection.retry":
            rounds[-1].append(line["attempt"])
    assert any(rounds)
    for tries in rounds:
        assert len(tries) == len(set(tries)), tries
