"""K2: what is settled beyond a stuck record is not repeated, however the consumer ended."""

from __future__ import annotations

import signal
import time
from typing import Final

import pytest

from support.checker import AtKafka, Campaign, NewCampaign, is_settled
from support.fixtures import StartChronicle
from support.partitions import held
from support.waiting import wait_for

BEYOND: Final = 300
OPTIONS: Final = (
    "--concurrency",
    "5",
    "--set",
    "session.timeout.ms=2000",
    "--set",
    "heartbeat.interval.ms=300",
    "--drain-timeout",
    "1s",
)


def unsettled(campaign: Campaign) -> set[int]:
    """What the group has not committed, by its offset or its metadata."""
    place = campaign.place
    assert isinstance(place, AtKafka)
    done = place.topics.committed(f"chronicle.{campaign.queue}", campaign.queue)
    return {
        number
        for number, (partition, offset) in place.lies.items()
        if not is_settled(offset, *done.get(partition, (0, "")))
    }


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_stuck_record_is_all_that_is_repeated(
    on_kafka: NewCampaign, chronicle: StartChronicle, how: signal.Signals
) -> None:
    """K2, F1: hundreds beyond it were settled and committed a moment ago."""
    campaign = on_kafka("stuck", partitions=1)
    gate = campaign.folder / "gate"
    (stuck,) = campaign.send(1, gate=str(gate))
    campaign.send(BEYOND)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_ended(BEYOND)
    if how is signal.SIGKILL:
        wait_for(lambda: unsettled(campaign) == {stuck}, 60, "the last commit")
    process.signal(how)
    assert process.wait() == (4 if how is signal.SIGTERM else -how)
    assert unsettled(campaign) == {stuck}
    gate.touch()
    assert campaign.consume(chronicle, *OPTIONS, "--until-empty").wait(60) == 0
    assert campaign.started().pop(stuck) == 2
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 1)


def test_a_stop_while_the_group_waits_for_a_dead_member_is_bounded_and_told(
    on_kafka: NewCampaign, chronicle: StartChronicle
) -> None:
    """K4: the brokers answer no commit until everybody has joined, so what was done meanwhile is repeated."""
    campaign = on_kafka("waiting", partitions=4)
    options = (
        "--concurrency", "4", "--set", "session.timeout.ms=20000", "--set", "heartbeat.interval.ms=300",
    )  # fmt: skip
    members = [campaign.consume(chronicle, *options) for _ in range(2)]
    for process in members:
        process.wait_for_line("kafka.partitions_assigned")
    wait_for(lambda: all(len(held(process)) == 2 for process in members), 60, "two partitions each")
    dead, stopped = members
    dead.kill()
    joining = campaign.consume(chronicle, *options)
    joining.wait_for_line("kafka_trigger.state_change")
    time.sleep(2.0)  # the group is asked to join again
    ours = campaign.send(20, partition=min(held(stopped)))
    campaign.wait_all_ended()
    stopped.signal(signal.SIGTERM)
    assert stopped.wait() == 4  # it did not wait for the dead one's session, or there would be an answer
    assert stopped.lines("offset_commit_failed")[-1]["level"] == "error"
    assert unsettled(campaign) == set(ours)
    wait_for(lambda: not unsettled(campaign), 60, "the next one to have done them")
    joining.signal(signal.SIGTERM)
    assert joining.wait() == 0
    assert set(campaign.started()) == set(ours)
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
