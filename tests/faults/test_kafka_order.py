"""D-23, K6: records of one key one after the other, also through retries and rebalances."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import Final

import pytest

from support.checker import AtKafka, Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.waiting import wait_for

KEYS: Final = 7
OPTIONS: Final = (
    "--concurrency",
    "10",
    "--set",
    "session.timeout.ms=2000",
    "--set",
    "heartbeat.interval.ms=300",
)
RETRIES: Final = ("--on-failure", "retry:3", "--retry-delay", "10ms,30ms")


def overtaken(campaign: Campaign, *, by_partition: bool = False) -> list[tuple[int, int]]:
    """Pairs of one key, or of one partition, of which the second was begun before the first was done."""
    place = campaign.place
    assert isinstance(place, AtKafka)
    lanes: dict[int, list[int]] = {}
    for number in sorted(place.lies, key=lambda number: place.lies[number]):
        lanes.setdefault(place.lies[number][0] if by_partition else number % KEYS, []).append(number)
    ended: dict[int, float] = {}
    for step in campaign.steps("end"):
        ended.setdefault(step.number, step.time)
    begun = {step.number: step.time for step in reversed(campaign.steps("start"))}
    return [
        (before, after)
        for lane in lanes.values()
        for before, after in pairwise(lane)
        if begun[after] < ended[before]
    ]


def lanes_used(campaign: Campaign) -> set[int]:
    """The partitions that have records."""
    assert isinstance(campaign.place, AtKafka)
    return {partition for partition, _ in campaign.place.lies.values()}


def assert_all_is_settled(campaign: Campaign) -> None:
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


@pytest.mark.parametrize(("options", "tries"), [((), 2), (RETRIES, 3)], ids=["requeue-once", "retry:3"])
def test_a_key_keeps_its_order_through_failures(
    on_kafka: NewCampaign, chronicle: StartChronicle, options: tuple[str, ...], tries: int
) -> None:
    """D-23: concurrency 10, and one record of three fails at first."""
    campaign = on_kafka("order")
    campaign.send(300, key=lambda n: n % KEYS, tries=lambda n: tries if n % 3 == 0 else 1, seconds=0.002)
    process = campaign.consume(chronicle, *OPTIONS, *options, "--until-empty", syncer="patient")
    assert process.wait(60) == 0
    assert overtaken(campaign) == []
    assert campaign.started() == {n: tries if n % 3 == 0 else 1 for n in campaign.sent}
    assert_all_is_settled(campaign)


def test_a_key_keeps_its_order_when_members_come_and_go(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """D-23, K4: one leaves, another joins, in the middle of retries; nothing is done twice."""
    campaign = on_kafka("moved")
    campaign.send(900, key=lambda n: n % KEYS, tries=lambda n: 2 if n % 5 == 0 else 1, seconds=0.01)
    members = [campaign.consume(chronicle, *OPTIONS, *RETRIES, syncer="patient") for _ in range(2)]
    campaign.wait_ended(150)
    members.append(campaign.consume(chronicle, *OPTIONS, *RETRIES, syncer="patient"))
    campaign.wait_ended(400)
    leaving = members.pop(0)
    leaving.signal(signal.SIGTERM)
    assert leaving.wait() == 0
    campaign.wait_all_ended()
    for process in members:
        process.signal(signal.SIGTERM)
    assert [process.wait() for process in members] == [0, 0]
    assert overtaken(campaign) == []
    assert set(campaign.ended().values()) == {1}
    assert_all_is_settled(campaign)


@pytest.mark.parametrize(("order", "most"), [("partition", 3), ("none", 10)])
def test_other_orders(on_kafka: NewCampaign, chronicle: StartChronicle, order: str, most: int) -> None:
    """D-23: a partition is a lane, or nothing is; so many are in work at once, and no more."""
    campaign = on_kafka(order)
    campaign.send(150, key=lambda n: n % KEYS, tries=1, seconds=0.02)
    process = campaign.consume(chronicle, *OPTIONS, "--order", order, "--until-empty", syncer="patient")
    assert process.wait(60) == 0
    steps = sorted(
        [(step.time, 1) for step in campaign.steps("start")]
        + [(step.time, -1) for step in campaign.steps("end")]
    )
    in_work = most_in_work = 0
    for _, change in steps:
        in_work += change
        most_in_work = max(most_in_work, in_work)
    assert most_in_work == min(most, len(lanes_used(campaign)) if order == "partition" else most)
    assert (overtaken(campaign, by_partition=True) == []) is (order == "partition")
    assert_all_is_settled(campaign)


def test_a_hot_key_does_not_hold_up_the_others(on_kafka: NewCampaign, chronicle: StartChronicle) -> None:
    """D-23: what waits for one key is parked, and those behind go on, in the same partition and in others."""
    campaign = on_kafka("hot")
    gate = campaign.folder / "gate"
    campaign.send(5000, key="hot", partition=0, gate=str(gate))
    process = campaign.consume(chronicle, *OPTIONS, syncer="tasked")
    campaign.wait_started(1)
    others = campaign.send(50, key=lambda n: n, partition=1)
    others += campaign.send(50, key=lambda n: n, partition=0)
    wait_for(lambda: set(others) <= set(campaign.ended()), 60, "all other keys")
    gate.touch()
    campaign.wait_all_ended()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert set(campaign.started().values()) == {1}
    assert_all_is_settled(campaign)
