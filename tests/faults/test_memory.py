"""X7: what is held is bounded by the prefetch, however much waits at the broker."""

from __future__ import annotations

from support import proc
from support.checker import AtRabbit, NewCampaign
from support.fixtures import StartChronicle
from support.waiting import wait_for

BODY, PREFETCH, SENT = 100_000, 200, 1500
# An interpreter with its libraries takes some 30 MB, the window 20; all that waits would be 130 more.
BOUND = 120_000_000


def test_memory_is_bounded_by_the_prefetch(on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """X7, D-7."""
    campaign = on_rabbit("memory")
    assert isinstance(campaign.place, AtRabbit)
    queues, gate = campaign.place.queues, campaign.folder / "gate"
    campaign.send(SENT, gate=str(gate), padding="x" * BODY)
    process = campaign.consume(chronicle, "--concurrency", "4", "--prefetch", str(PREFETCH))
    campaign.wait_started(4)
    wait_for(lambda: queues.depth(campaign.queue) == SENT - PREFETCH, 60, "a full window")
    gate.touch()
    campaign.wait_all_ended()
    assert proc.peak_memory(process.pid) < BOUND
    process.kill()
    assert not campaign.report().lost
