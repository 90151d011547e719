"""F1: a consumer killed in the middle of its work, again and again, loses nothing."""

from __future__ import annotations

import signal
from random import Random

import pytest

from chronicle.core.queues import dead_letter_queue
from support.checker import Campaign, NewCampaign, wait_for_lines
from support.fixtures import Broker, StartChronicle
from support.waiting import wait_for

CONCURRENCY = 4
PER_ROUND = 20


def test_thirty_kills_lose_nothing_on_rabbitmq(
    on_rabbit: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """F1, RB1: no more repeats than the broker had handed out, per kill."""
    kill_and_restart(on_rabbit("killed"), chronicle, luck, kills=30)


def test_kills_lose_nothing_on_a_quorum_queue(
    on_rabbit: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """F1, RB10."""
    kill_and_restart(on_rabbit("killed", quorum=True), chronicle, luck, kills=8)


def test_thirty_kills_lose_nothing_on_the_local_queue(
    in_file: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """F1: what a dead process held is free again for the next one."""
    kill_and_restart(in_file("killed"), chronicle, luck, kills=30)


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_kills_amid_the_moving_of_dead_letters_lose_none(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, luck: Random, quorum: bool
) -> None:
    """F1, RB7, D-22: each is in its queue or among the dead letters, perhaps in both and never in neither."""
    campaign = on_rabbit("moved", quorum=quorum)
    campaign.dead = rabbit.queues.declare(dead_letter_queue(campaign.queue))
    options = ("--concurrency", str(CONCURRENCY), "--on-failure", "dead-letter", "--brake", "0")
    for _ in range(8):
        campaign.send(PER_ROUND, answer="false")
        begun = len(campaign.started())
        process = campaign.consume(chronicle, *options)
        campaign.wait_started(begun + luck.randrange(1, PER_ROUND))
        process.signal(signal.SIGKILL)
        process.wait()
    assert campaign.consume(chronicle, *options, "--until-empty").wait(60) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert set(report.dead) == set(range(8 * PER_ROUND))


def kill_and_restart(campaign: Campaign, chronicle: StartChronicle, luck: Random, kills: int) -> None:
    # With no more handed out than are worked on, the bound on repeats does not depend on anybody's speed.
    options = ("--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY))
    for _ in range(kills):
        campaign.send(PER_ROUND, seconds=0.01)
        process = campaign.consume(chronicle, *options)
        wait_for_more(campaign, luck.randrange(1, PER_ROUND))
        process.signal(signal.SIGKILL)
        process.wait()
    assert campaign.consume(chronicle, *options, "--until-empty").wait(60) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= CONCURRENCY * kills


def wait_for_more(campaign: Campaign, more: int) -> None:
    before = sum(campaign.ended().values())
    wait_for(
        lambda: sum(campaign.ended().values()) >= before + more, 60, f"{more} messages more", every=0.005
    )


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_a_kill_gives_back_what_was_in_flight(
    on_rabbit: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F1: exactly the messages that were not finished come back."""
    campaign = on_rabbit("inflight")
    campaign.send(3)
    campaign.send(3, seconds=600)
    process = campaign.consume(chronicle, "--concurrency", "3", "--prefetch", "3", syncer=syncer)
    campaign.wait_started(6)
    wait_for_lines(process, "message.acked", 3)
    process.kill()
    report = campaign.report()
    assert (report.lost, sorted(report.queued), report.repeats) == ([], [3, 4, 5], 0)
