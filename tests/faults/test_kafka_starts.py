"""K1: where a group begins, and what becomes of it when the topic changes under it."""

from __future__ import annotations

import signal
import time
from typing import Final

from confluent_kafka.admin import NewPartitions

from support.checker import AtKafka, Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.partitions import held
from support.process import ChronicleProcess
from support.topics import Topics
from support.waiting import wait_for

OPTIONS: Final = (
    "--concurrency", "10", "--set", "session.timeout.ms=2000", "--set", "heartbeat.interval.ms=300",
    "--set", "topic.metadata.refresh.interval.ms=500",
)  # fmt: skip
ONCE: Final = (*OPTIONS, "--until-empty")


def topics_of(campaign: Campaign) -> Topics:
    assert isinstance(campaign.place, AtKafka)
    return campaign.place.topics


def stop(process: ChronicleProcess) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_a_new_group_handles_the_backlog(on_kafka: NewCampaign, chronicle: StartChronicle) -> None:
    """K1: a thousand records that were there before."""
    campaign = on_kafka("backlog")
    campaign.send(1000)
    process = campaign.consume(chronicle, *ONCE)
    assert process.wait() == 0
    assert process.lines("consumer.ready")[0]["queued"] == 1000
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)


def test_from_the_end_skips_what_was_there_and_nothing_else(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K1: also what comes while nobody reads, and a partition that is added later; by three at once."""
    campaign = on_kafka("end")
    skipped = campaign.send(100)
    first = [campaign.consume(chronicle, *OPTIONS, "--from", "end") for _ in range(3)]
    for process in first:
        process.wait_for_line("consumer.ready")
    for process in first:
        stop(process)
    campaign.send(100)
    second = campaign.consume(chronicle, *OPTIONS, "--from", "end")
    campaign.wait_ended(100)
    with topics_of(campaign).admin() as admin:
        for answer in admin.create_partitions([NewPartitions(campaign.queue, 4)]).values():
            answer.result(10)
    wait_for(lambda: 3 in topics_of(campaign).leaders(campaign.queue), 60, "another partition")
    campaign.send(50, partition=3)
    campaign.wait_ended(150)
    stop(second)
    assert not set(skipped) & set(campaign.started())
    assert set(campaign.started().values()) == {1}
    assert campaign.report(patience=0).lost == skipped


def test_from_a_time_begins_there(on_kafka: NewCampaign, chronicle: StartChronicle) -> None:
    """K1: a partition without anything so late begins at its end."""
    campaign = on_kafka("time")
    campaign.send(50, partition=0)
    campaign.send(50, partition=1)
    time.sleep(0.05)
    since = int(time.time() * 1000)
    time.sleep(0.05)
    wanted = campaign.send(50, partition=0)
    assert campaign.consume(chronicle, *ONCE, "--from", str(since)).wait() == 0
    later = campaign.send(10, partition=1)
    assert campaign.consume(chronicle, *ONCE).wait() == 0
    assert sorted(campaign.started().elements()) == wanted + later


def test_records_deleted_before_they_were_read_are_told(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K1: retention was faster, while nobody read; the rest is handled."""
    campaign = on_kafka("expired", partitions=1)
    campaign.send(10)
    assert campaign.consume(chronicle, *ONCE).wait() == 0
    gone = campaign.send(20)
    campaign.send(5)
    topics_of(campaign).delete_records(campaign.queue, {0: 30})
    process = campaign.consume(chronicle, *ONCE)
    assert process.wait() == 0
    (told,) = process.lines("kafka.records_deleted")
    assert (told["level"], told["partition"], told["count"]) == ("error", 0, 20)
    assert campaign.report(patience=0).lost == gone


def test_records_deleted_while_the_consumer_is_behind_are_told(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K1: it reads ahead by some hundred, and no more."""
    campaign = on_kafka("overrun", partitions=1)
    gate = campaign.folder / "gate"
    campaign.send(4000, gate=str(gate))
    process = campaign.consume(chronicle, "--concurrency", "10", "--order", "none", syncer="tasked")
    campaign.wait_started(10)
    time.sleep(2.5)  # after a second without room the partition is paused
    topics_of(campaign).delete_records(campaign.queue, {0: 3000})
    gate.touch()
    told = process.wait_for_line("kafka.records_deleted")
    wait_for(lambda: set(range(3000, 4000)) <= set(campaign.ended()), 30, "what is left")
    handled = len(campaign.ended()) - 1000
    stop(process)
    assert (told["level"], told["count"]) == ("error", 3000 - handled)
    assert len(process.lines("kafka.records_deleted")) == 1
    assert set(campaign.started().values()) == {1}


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K7, F7: that it is away is told as an error; then nothing of the new one is skipped."""
    campaign = on_kafka("anew", partitions=2)
    topics = topics_of(campaign)
    for partition in range(2):
        campaign.send(50, partition=partition)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    for length in (20, 200):  # shorter than before, and longer
        topics.delete(campaign.queue)
        wait_for(lambda: not held(process), 60, "the end of its partitions")
        topics.make(campaign.queue, 2)
        for partition in range(2):
            campaign.send(length, partition=partition)
        campaign.wait_all_ended(30)
    stop(process)
    assert process.lines("consumer_poll_failed")[0]["level"] == "error"
    assert set(campaign.started().values()) <= {1, 2}
    assert topics.lag(f"chronicle.{campaign.queue}", campaign.queue) == 0


def test_a_topic_that_is_made_anew_at_once_and_is_shorter_is_read_from_its_beginning(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K7: nobody saw it away, but the offsets went back."""
    campaign = on_kafka("swapped", partitions=2)
    topics = topics_of(campaign)
    for partition in range(2):
        campaign.send(50, partition=partition)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    topics.delete(campaign.queue)
    topics.make(campaign.queue, 2)
    for partition in range(2):
        campaign.send(20, partition=partition)
    campaign.wait_all_ended(30)
    stop(process)
    assert set(campaign.started().values()) == {1}
    assert topics.lag(f"chronicle.{campaign.queue}", campaign.queue) == 0


def test_what_was_in_work_when_the_topic_was_made_anew_skips_nothing_of_the_new_one(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """D-5, K7: its offset is one of the old topic. The new one is empty still, so no record tells."""
    campaign = on_kafka("swept", partitions=1)
    topics = topics_of(campaign)
    gate = campaign.folder / "gate"
    gone = campaign.send(5, gate=str(gate))
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(5)
    topics.delete(campaign.queue)
    topics.make(campaign.queue, 1)
    time.sleep(3)  # less than until the next look whether it is the same topic
    gate.touch()
    campaign.wait_ended(5)
    stop(process)
    assert process.lines("kafka.records_deleted")
    assert len(process.lines("message.stale")) == 5
    campaign.sent -= set(gone)
    campaign.send(10)
    assert campaign.consume(chronicle, *ONCE).wait() == 0
    assert campaign.report().lost == []


def test_a_topic_that_was_made_anew_just_before_a_stop_is_begun_anew_by_the_next_run(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """D-5, K7: it is longer than what was read of the old one, so only its identity tells."""
    campaign = on_kafka("exchanged", partitions=1)
    topics = topics_of(campaign)
    campaign.send(20)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    topics.delete(campaign.queue)
    topics.make(campaign.queue, 1)
    campaign.send(60)
    campaign.wait_ended(21)
    stop(process)
    assert campaign.consume(chronicle, *ONCE).wait() == 0
    assert campaign.report().lost == []


def test_a_topic_that_was_made_anew_just_before_a_member_joins_is_begun_anew_by_both(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """D-5, K7: what is committed for a partition that is taken away is of the new topic, or it is nothing."""
    campaign = on_kafka("handed-over", partitions=2)
    topics = topics_of(campaign)
    for partition in range(2):
        campaign.send(20, partition=partition)
    first = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    topics.delete(campaign.queue)
    topics.make(campaign.queue, 2)
    for partition in range(2):
        campaign.send(60, partition=partition)
    campaign.wait_ended(42)  # it has gone on in the middle
    second = campaign.consume(chronicle, *OPTIONS)
    wait_for(lambda: len(held(first)) == len(held(second)) == 1, 60, "a fair share")
    campaign.wait_all_ended()
    stop(first)
    stop(second)
    assert campaign.report().lost == []
