"""F1 and S4 at Redis: what a dead consumer held is claimed in time, and a slow one is never robbed."""

from __future__ import annotations

import signal
import time
from random import Random
from typing import Final

import pytest

from support.checker import AtRedis, Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.streams import Streams
from support.waiting import wait_for

CONCURRENCY: Final = 4
CLAIM_IDLE: Final = 2.0  # the least there is
SWEEP: Final = 2.0  # at most so long between two looks for what nobody touches
SLACK: Final = 1.5  # a busy machine
# With no more handed out than are worked on, the bound on repeats does not depend on anybody's speed.
OPTIONS: Final = (
    "--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY), "--claim-idle", f"{CLAIM_IDLE:g}s",
)  # fmt: skip


def streams_of(campaign: Campaign) -> Streams:
    assert isinstance(campaign.place, AtRedis)
    return campaign.place.streams


def stop(process: ChronicleProcess) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def assert_all_is_settled(campaign: Campaign) -> None:
    assert streams_of(campaign).pending(campaign.queue) == []
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


def test_thirty_kills_lose_nothing(on_redis: NewCampaign, chronicle: StartChronicle, luck: Random) -> None:
    """F1, S4: the next process claims what the dead one held; no more repeats than were in work."""
    kills = 30
    campaign = on_redis("killed")
    for _ in range(kills):
        campaign.send(20, seconds=0.01)
        before = sum(campaign.ended().values())
        wanted = before + luck.randrange(1, 20)
        process = campaign.consume(chronicle, *OPTIONS)
        wait_for(lambda: sum(campaign.ended().values()) >= wanted, 60, "some more", every=0.005)  # noqa: B023
        process.signal(signal.SIGKILL)
        process.wait()
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")  # from then on it knows the signal
    campaign.wait_all_ended()
    wait_for(lambda: not streams_of(campaign).pending(campaign.queue), 30, "everything acknowledged")
    stop(process)
    assert sum(campaign.started().values()) - len(campaign.sent) <= CONCURRENCY * kills
    assert_all_is_settled(campaign)


@pytest.mark.timed
def test_one_of_two_is_killed_thirty_times(
    on_redis: NewCampaign, chronicle: StartChronicle, luck: Random
) -> None:
    """S4, D-12: nothing lost, nothing left pending, each entry taken over within claim-idle and one sweep."""
    campaign = on_redis("pair")
    steady = campaign.consume(chronicle, *OPTIONS)
    steady.wait_for_line("consumer.ready")
    killed: dict[int, float] = {}
    for _ in range(30):
        victim = campaign.consume(chronicle, *OPTIONS)
        victim.wait_for_line("consumer.ready")
        wait_for(lambda: gets_work(campaign, victim), 30, "the victim to have work")  # noqa: B023
        time.sleep(luck.uniform(0, 0.05))
        victim.signal(signal.SIGKILL)
        killed[victim.pid] = time.monotonic()
        victim.wait()
    campaign.wait_all_ended()
    wait_for(lambda: not streams_of(campaign).pending(campaign.queue), 30, "everything acknowledged")
    stop(steady)
    waits = takeover_waits(campaign, killed)
    assert waits, "nobody was killed in the middle of anything"
    assert max(waits) <= CLAIM_IDLE + SWEEP + SLACK
    assert sum(campaign.started().values()) - len(campaign.sent) <= CONCURRENCY * len(killed)
    assert_all_is_settled(campaign)


def gets_work(campaign: Campaign, process: ChronicleProcess) -> bool:
    """Whether it has begun anything; there is more for it as long as it has not."""
    began = any(step.pid == process.pid for step in campaign.steps("start"))
    if not began:
        campaign.send(4, seconds=0.05)
    return began


def takeover_waits(campaign: Campaign, killed: dict[int, float]) -> list[float]:
    """How long each interrupted entry lay before somebody else began it."""
    waits: list[float] = []
    last: dict[int, int] = {}
    for step in campaign.steps("start"):
        if step.number in last:
            waits.append(step.time - killed[last[step.number]])
        last[step.number] = step.pid
    return waits


def test_a_slow_syncer_is_never_robbed(on_redis: NewCampaign, chronicle: StartChronicle) -> None:
    """S4: three times slower than --claim-idle, with another consumer that has nothing else to do."""
    campaign = on_redis("slow")
    slow = campaign.consume(chronicle, *OPTIONS)
    slow.wait_for_line("consumer.ready")
    campaign.send(2 * CONCURRENCY, seconds=3 * CLAIM_IDLE)
    campaign.wait_started(CONCURRENCY)
    idle = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    for process in (slow, idle):
        stop(process)
    assert set(campaign.started().values()) == {1}
    assert_all_is_settled(campaign)


def test_what_waits_in_the_buffer_of_a_slow_consumer_is_not_taken_either(
    on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S4: received is as good as begun."""
    campaign = on_redis("buffered")
    campaign.send(4, seconds=CLAIM_IDLE)
    slow = campaign.consume(chronicle, "--prefetch", "4", "--claim-idle", "2s")
    campaign.wait_started(1)
    wait_for(lambda: len(streams_of(campaign).pending(campaign.queue)) == 4, 30, "a full buffer")
    idle = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended()
    for process in (slow, idle):
        stop(process)
    assert {step.pid for step in campaign.steps("start")} == {slow.pid}
    assert set(campaign.started().values()) == {1}
    assert_all_is_settled(campaign)


def test_a_frozen_consumer_may_be_robbed_and_settles_nothing_that_is_not_its_own(
    on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """F12, S4: nobody can tell it from a dead one; its late success must not hide the other's failure."""
    campaign = on_redis("frozen")
    gate = campaign.folder / "gate"
    campaign.send(2, gate=str(gate))
    frozen = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(2)
    frozen.signal(signal.SIGSTOP)
    other = campaign.consume(chronicle, *OPTIONS)
    wait_for(lambda: sum(campaign.started().values()) == 4, 30, "the other one to take over")
    frozen.signal(signal.SIGCONT)
    gate.touch()
    wait_for(lambda: sum(campaign.ended().values()) == 4, 30, "both to have ended")
    campaign.send(4)
    campaign.wait_all_ended()
    for process in (frozen, other):
        stop(process)
    assert_all_is_settled(campaign)


def test_two_consumers_never_share_a_name(on_redis: NewCampaign, chronicle: StartChronicle) -> None:
    """S5: whoever shares a name shares what is pending."""
    campaign = on_redis("names")
    gate = campaign.folder / "gate"
    campaign.send(8, gate=str(gate))
    running = [campaign.consume(chronicle, *OPTIONS) for _ in range(2)]
    campaign.wait_started(8)
    held = streams_of(campaign).held(campaign.queue)
    gate.touch()
    campaign.wait_all_ended()
    for process in running:
        stop(process)
    assert sorted(held.values()) == [4, 4]
    assert_all_is_settled(campaign)


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_a_kill_leaves_exactly_what_was_in_flight(
    on_redis: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F1: the finished ones are acknowledged, the others pending."""
    campaign = on_redis("inflight")
    campaign.send(3)
    campaign.send(3, seconds=600)
    process = campaign.consume(chronicle, "--concurrency", "3", "--prefetch", "3", syncer=syncer)
    campaign.wait_started(6)
    wait_for(lambda: len(process.lines("message.acked")) >= 3, 30, "three acknowledged")
    wait_for(lambda: len(streams_of(campaign).pending(campaign.queue)) == 3, 30, "three pending")
    process.kill()
    report = campaign.report()
    assert (report.lost, sorted(report.queued), report.repeats) == ([], [3, 4, 5], 0)
