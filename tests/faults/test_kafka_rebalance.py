"""K3, K4, K-b, K-c: what runs when partitions move finishes where it runs, and is not done elsewhere."""

from __future__ import annotations

import signal
import time
from typing import Final

import pytest

from support.checker import Campaign, NewCampaign
from support.commits import Commits
from support.fixtures import StartChronicle
from support.partitions import held
from support.process import ChronicleProcess
from support.waiting import wait_for

CLASSIC: Final = ("--set", "session.timeout.ms=6000", "--set", "heartbeat.interval.ms=300")
CONSUMER: Final = ("--set", "group.protocol=consumer")
EAGER: Final = (*CLASSIC, "--set", "partition.assignment.strategy=range")
PROTOCOLS: Final = pytest.mark.parametrize(
    "options", [CLASSIC, CONSUMER, EAGER], ids=["classic", "consumer", "eager"]
)
PARTITIONS: Final = 4


def consume(
    campaign: Campaign, start: StartChronicle, *options: str, syncer: str = "sync"
) -> ChronicleProcess:
    """A member that has its partitions."""
    process = campaign.consume(start, *options, syncer=syncer)
    process.wait_for_line("consumer.ready")
    return process


def stop(*processes: ChronicleProcess) -> None:
    for process in processes:
        process.signal(signal.SIGTERM)
    assert [process.wait() for process in processes] == [0] * len(processes)


def send_to_all(campaign: Campaign, count: int, **asked: object) -> None:
    for partition in range(PARTITIONS):
        campaign.send(count, partition=partition, **asked)


def assert_all_is_settled(campaign: Campaign) -> None:
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


@pytest.mark.parametrize(
    ("options", "syncer"),
    [(CLASSIC, "tasked"), (CONSUMER, "sync"), (CONSUMER, "tasked"), (EAGER, "sync")],
    ids=["classic-tasked", "consumer-sync", "consumer-tasked", "eager-sync"],
)
def test_what_runs_when_a_member_joins_finishes_here_and_is_not_done_there(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...], syncer: str
) -> None:
    """K4: what has begun ends within the grace and is committed; the rest is begun once, somewhere."""
    campaign = on_kafka("joined", partitions=PARTITIONS)
    gate = campaign.folder / "gate"
    old = consume(campaign, chronicle, "--concurrency", "8", *options, syncer=syncer)
    send_to_all(campaign, 2, gate=str(gate))
    campaign.wait_started(8)
    send_to_all(campaign, 50)
    new = campaign.consume(chronicle, "--concurrency", "8", *options, syncer=syncer)
    time.sleep(1.5)  # the group is asked to share out, and waits for those that run
    gate.touch()
    wait_for(lambda: len(held(new)) == PARTITIONS // 2, 30, "a fair share")
    send_to_all(campaign, 5)
    campaign.wait_all_ended()
    stop(old, new)
    assert set(campaign.started().values()) == {1}
    assert {step.pid for step in campaign.steps("end")} == {old.pid, new.pid}
    assert not old.lines("message.stale")
    assert_all_is_settled(campaign)


@PROTOCOLS
def test_what_takes_longer_than_the_grace_is_done_elsewhere_and_its_late_result_is_stale(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...]
) -> None:
    """K4: a partition does not wait for ever; half of max.poll.interval.ms, here 3 s."""
    campaign = on_kafka("late", partitions=PARTITIONS)
    gate = campaign.folder / "gate"
    short = ("--concurrency", "4", *options, "--set", "max.poll.interval.ms=6000")
    again = 4 if options == EAGER else 2  # an eager group takes everything from everybody
    old = consume(campaign, chronicle, *short)
    send_to_all(campaign, 1, gate=str(gate))
    campaign.wait_started(4)
    new = consume(campaign, chronicle, *short)
    wait_for(lambda: sum(campaign.started().values()) == 6, 30, "the new one to begin its share again")
    gate.touch()
    wait_for(lambda: sum(campaign.ended().values()) == 4 + again, 30, "both to have ended")
    wait_for(lambda: len(old.lines("message.stale")) == again, 30, "stale results")
    send_to_all(campaign, 2)
    campaign.wait_all_ended()
    stop(old, new)
    assert sorted(campaign.started().values())[-again - 1 :] == [1] + [2] * again
    assert_all_is_settled(campaign)


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_syncer_longer_than_the_poll_interval_causes_no_rebalance(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...]
) -> None:
    """K-b, K3: three times max.poll.interval.ms, with all places taken and more to read."""
    campaign = on_kafka("slow", partitions=PARTITIONS)
    session = ("--set", "session.timeout.ms=2000") if options == CLASSIC else ()
    short = (*session, "--set", "max.poll.interval.ms=2000")
    slow = consume(campaign, chronicle, "--concurrency", "4", *options, *short)
    send_to_all(campaign, 1, seconds=6)
    send_to_all(campaign, 600)
    campaign.wait_all_ended(60)
    stop(slow)
    assert len(slow.lines("kafka.partitions_assigned")) == 1
    assert not slow.lines("kafka.partitions_revoked")
    assert not slow.lines("kafka.partitions_lost")
    assert not slow.lines("consumer_poll_failed")
    assert set(campaign.started().values()) == {1}
    assert_all_is_settled(campaign)


@pytest.mark.parametrize("options", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
def test_a_member_that_stood_still_commits_nothing_of_what_it_lost(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...]
) -> None:
    """K-c, K4, F12: what it had is lost, not revoked; its late results are stale, and it works again."""
    campaign = on_kafka("frozen", partitions=PARTITIONS)
    quick = ("--concurrency", "8", *options)
    frozen = consume(campaign, chronicle, *quick)
    with Commits(campaign) as commits:
        send_to_all(campaign, 1, seconds=4)
        campaign.wait_started(4)
        frozen.signal(signal.SIGSTOP)
        other = consume(campaign, chronicle, *quick)
        wait_for(lambda: sum(campaign.started().values()) == 8, 30, "the other one to take over")
        frozen.signal(signal.SIGCONT)
        wait_for(lambda: sum(campaign.ended().values()) == 4, 3, "the late ends")
        frozen.wait_for_line("kafka.partitions_lost")
        wait_for(lambda: sum(campaign.ended().values()) == 8, 30, "the other one's ends")
        wait_for(lambda: held(frozen) and held(other), 30, "a share for both")
        send_to_all(campaign, 5)
        campaign.wait_all_ended()
        stop(frozen, other)
    assert len(frozen.lines("kafka.partitions_lost")) == 1
    assert commits.steps_back() == []
    assert commits.premature(range(4), other.pid) == []
    assert commits.premature() == []
    assert sorted(campaign.started().values())[-5:] == [1, 2, 2, 2, 2]
    assert_all_is_settled(campaign)


@pytest.mark.parametrize(
    ("options", "fenced"), [(CLASSIC, "old"), (CONSUMER, "new")], ids=["classic", "consumer"]
)
def test_of_two_members_with_the_same_instance_id_one_ends(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...], fenced: str
) -> None:
    """K8: it cannot be told which of them is wanted, so it must be told."""
    campaign = on_kafka("static", partitions=PARTITIONS)
    static = (*options, "--set", "group.instance.id=one")
    members = {"old": consume(campaign, chronicle, *static)}
    members["new"] = campaign.consume(chronicle, *static)
    loser = members.pop(fenced)
    assert loser.wait() == 3
    assert "group.instance.id" in loser.stderr
    send_to_all(campaign, 5)
    campaign.wait_all_ended()
    stop(*members.values())
    assert_all_is_settled(campaign)
