"""K2: what is settled beyond a stuck record is not repeated, however the consumer ended."""

from __future__ import annotations

import signal
from typing import Final

import pytest

from support.checker import AtKafka, Campaign, NewCampaign, is_settled
from support.fixtures import StartChronicle
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
        wait_for(lambda: unsettled(campaign) == {stuck}, 10, "the last commit")
    process.signal(how)
    assert process.wait() == (4 if how is signal.SIGTERM else -how)
    assert unsettled(campaign) == {stuck}
    gate.touch()
    assert campaign.consume(chronicle, *OPTIONS, "--until-empty").wait(60) == 0
    assert campaign.started().pop(stuck) == 2
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 1)
