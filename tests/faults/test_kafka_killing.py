"""F1, F2 and F14 at Kafka: a dead consumer's records come again, and only those it had not committed."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from support.checker import AtKafka, Campaign, NewCampaign
from support.fixtures import Kafka, StartChronicle
from support.kafka_trio import KafkaTrio
from support.process import ChronicleProcess
from support.proxy import Mode
from support.topic_stage import campaign_at
from support.waiting import wait_for

CONCURRENCY: Final = 4
# A dead member keeps its partitions until its session is over, which the brokers here allow to be short.
OPTIONS: Final = ("--concurrency", str(CONCURRENCY), "--set", "session.timeout.ms=1000")
COMMIT_EVERY: Final = 0.2
SECONDS: Final = 0.02
# What C workers do between two commits, twice that for a busy machine.
SINCE_COMMIT: Final = int(2 * CONCURRENCY * COMMIT_EVERY / SECONDS)


def stop(process: ChronicleProcess) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr


def kill_again_and_again(
    campaign: Campaign, chronicle: StartChronicle, luck: Random, kills: int, syncer: str
) -> None:
    """Kill consumers in the middle of work, and let the last one finish."""
    for _ in range(kills):
        campaign.send(20, seconds=SECONDS)
        before = sum(campaign.ended().values())
        wanted = before + luck.randrange(1, 20)
        process = campaign.consume(chronicle, *OPTIONS, syncer=syncer)
        wait_for(lambda: sum(campaign.ended().values()) >= wanted, 60, "some more", every=0.005)  # noqa: B023
        process.signal(signal.SIGKILL)
        process.wait()
    process = campaign.consume(chronicle, *OPTIONS, syncer=syncer)
    process.wait_for_line("consumer.ready")  # from then on it knows the signal
    campaign.wait_all_ended()
    # What a dead one had finished and not committed comes again, to whoever has its partition by now.
    assert isinstance(campaign.place, AtKafka)
    topics, group = campaign.place.topics, f"chronicle.{campaign.queue}"
    wait_for(lambda: topics.lag(group, campaign.queue) == 0, 30, "everything committed", every=0.1)
    stop(process)


@pytest.mark.parametrize(("syncer", "kills"), [("sync", 12), ("tasked", 8)])
def test_kills_lose_nothing(
    on_kafka: NewCampaign, chronicle: StartChronicle, luck: Random, syncer: str, kills: int
) -> None:
    """F1, K2: no more repeats than were in work, and settled since the last commit."""
    campaign = on_kafka("killed")
    kill_again_and_again(campaign, chronicle, luck, kills, syncer)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= (CONCURRENCY + SINCE_COMMIT) * kills


@pytest.mark.soak
def test_a_hundred_kills_lose_nothing(on_kafka: NewCampaign, chronicle: StartChronicle, luck: Random) -> None:
    """F1, K2."""
    campaign = on_kafka("killed")
    kill_again_and_again(campaign, chronicle, luck, 100, "sync")
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= (CONCURRENCY + SINCE_COMMIT) * 100


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_a_kill_leaves_exactly_what_was_in_flight(
    on_kafka: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F1, K2: what was settled beyond the oldest open record is committed, too."""
    campaign = on_kafka("inflight", partitions=1)
    campaign.send(2)
    campaign.send(2, seconds=600)
    campaign.send(40)
    process = campaign.consume(chronicle, "--concurrency", "3", syncer=syncer)
    campaign.wait_ended(42)
    time.sleep(3 * COMMIT_EVERY)
    process.kill()
    report = campaign.report()
    assert (report.lost, sorted(report.queued), report.repeats) == ([], [2, 3], 0)


def test_a_slow_network_is_no_fault(kafka: Kafka, chronicle: StartChronicle, tmp_path: Path) -> None:
    """F14: 200 ms of latency, then single bytes; nothing lost, nothing twice, no rebalance."""
    server = kafka.server
    campaign = campaign_at(server, tmp_path, "slow")
    server.proxy.set(Mode.DELAY)
    process = campaign.consume(chronicle, "--concurrency", "4", url=server.proxied_url)
    process.wait_for_line("consumer.ready")
    campaign.send(100)
    campaign.wait_all_ended()
    server.proxy.set(Mode.SLICE)
    campaign.send(50)
    campaign.wait_all_ended()
    stop(process)
    server.restore_network()
    assert len(process.lines("kafka.partitions_assigned")) == 1
    assert not process.lines("consumer_poll_failed")
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)


@pytest.mark.parametrize("mode", [Mode.BLACK_HOLE, None], ids=["black hole", "cut"])
def test_a_broken_network_is_survived(
    kafka: Kafka, chronicle: StartChronicle, tmp_path: Path, mode: Mode | None
) -> None:
    """F5, F11: lost 0; what was in work is not begun again."""
    server = kafka.server
    campaign = campaign_at(server, tmp_path, "network")
    process = campaign.consume(chronicle, "--concurrency", "4", url=server.proxied_url)
    process.wait_for_line("consumer.ready")
    for _ in range(3):
        campaign.send(50, seconds=0.01)
        campaign.wait_ended(len(campaign.sent) - 30)
        if mode is not None:
            server.proxy.set(mode)
            time.sleep(1.5)
            server.restore_network()
        else:
            server.proxy.cut()
    campaign.wait_all_ended()
    stop(process)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)


def test_a_leader_and_the_coordinator_may_fail(
    kafka_trio: KafkaTrio, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """K7: each is killed once in the middle of work, with dead letters under way; nothing is lost."""
    campaign = campaign_at(kafka_trio, tmp_path, "failover")
    dying = ("--on-failure", "dead-letter", "--brake", "0")  # many fail in a row, by plan
    process = campaign.consume(chronicle, "--concurrency", "4", *dying)
    process.wait_for_line("consumer.ready")
    group = f"chronicle.{campaign.queue}"
    for find in (partial(kafka_trio.leader, campaign.queue), partial(kafka_trio.coordinator, group)):
        settled = len(campaign.ended())
        campaign.send(100, seconds=0.02)
        campaign.send(20, answer="false")
        wait_for(lambda: len(campaign.ended()) > settled + 10, 60, "some more")  # noqa: B023
        victim = find()
        victim.kill()
        kafka_trio.await_failover()
        wait_for(
            lambda: kafka_trio.topics.lag(group, campaign.queue) == 0, 60, "everything settled", every=0.2
        )
        kafka_trio.start()
    assert process.running
    stop(process)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert len(report.dead) == 40
    assert report.repeats <= 2 * (CONCURRENCY + SINCE_COMMIT)
