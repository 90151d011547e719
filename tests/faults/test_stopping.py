"""F2 and F3: a stop finishes what was received; what cannot be finished in time goes back, by name."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from support.checker import AtKafka, AtRabbit, AtRedis, Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.proxy import Proxy
from support.waiting import wait_for

SENT, PREFETCH, CONCURRENCY = 40, 12, 4
ALWAYS_STUCK = {"seconds": 600}


@pytest.fixture(params=["rabbitmq", "redis", "kafka", "local"])
def campaign(request: pytest.FixtureRequest) -> Campaign:
    names = {"rabbitmq": "on_rabbit", "redis": "on_redis", "kafka": "on_kafka", "local": "in_file"}
    maker = request.getfixturevalue(names[request.param])
    # One partition, so that the messages come in the order in which they were sent.
    made: Campaign = maker("stopped", partitions=1) if request.param == "kafka" else maker("stopped")
    return made


@pytest.mark.parametrize(
    ("syncer", "number"),
    [
        ("sync", signal.SIGTERM),
        ("tasked", signal.SIGTERM),
        ("blocking", signal.SIGINT),
        ("sync", signal.SIGINT),
    ],
)
def test_a_stop_finishes_what_was_received_and_takes_nothing_new(
    campaign: Campaign, chronicle: StartChronicle, tmp_path: Path, syncer: str, number: signal.Signals
) -> None:
    """F2, D-11: in flight and buffered alike, exit 0, nothing lost and nothing twice."""
    gate = tmp_path / "gate"
    campaign.send(SENT, gate=str(gate))
    process = campaign.consume(
        chronicle, "--concurrency", str(CONCURRENCY), "--prefetch", str(PREFETCH), syncer=syncer
    )
    campaign.wait_started(1 if syncer == "blocking" else CONCURRENCY)
    wait_for_full_buffer(campaign)
    process.signal(number)
    process.wait_for_line("consumer.stopping")
    gate.touch()
    assert process.wait() == 0
    assert not process.lines("message.left")
    assert sum(campaign.started().values()) == PREFETCH
    report = campaign.report()
    assert (report.lost, report.unexpected, report.repeats) == ([], [], 0)
    assert report.handled == set(range(PREFETCH))
    assert sorted(report.queued) == list(range(PREFETCH, SENT))


def wait_for_full_buffer(campaign: Campaign) -> None:
    """Until the broker has handed out all it may. A file has no pushing broker: a claim is whole at once."""
    place, queue = campaign.place, campaign.queue
    if isinstance(place, AtRabbit):
        wait_for(lambda: place.queues.depth(queue) == SENT - PREFETCH, 30, "a full buffer")
    if isinstance(place, AtRedis):
        wait_for(lambda: len(place.streams.pending(queue)) == PREFETCH, 30, "a full buffer")
    if isinstance(place, AtKafka):
        time.sleep(0.5)  # the brokers know nothing of buffers


@pytest.mark.parametrize("syncer", ["sync", "tasked", "blocking"])
def test_what_is_unfinished_at_the_deadline_goes_back_by_name(
    campaign: Campaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F3, X6: exit 4, the message is in the queue again and has its line in the log."""
    campaign.send(2)
    campaign.send(1, **ALWAYS_STUCK)
    process = campaign.consume(chronicle, "--drain-timeout", "1s", syncer=syncer)
    campaign.wait_started(3)
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 4
    (left,) = process.lines("message.left")
    assert left["queue"] == campaign.queue
    assert left["reason"] == "interrupted"
    assert process.lines("consumer.stopped")[0]["unfinished"] == 1
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (2,))


def test_a_drain_without_any_time_loses_no_connection(campaign: Campaign, chronicle: StartChronicle) -> None:
    """D-11: the patience is for syncers. The broker is heard out, and what was settled is settled."""
    campaign.send(SENT)
    process = campaign.consume(chronicle, "--until-empty", "--drain-timeout", "0s")
    assert process.wait() == 0
    assert not process.lines("connection.lost")
    assert process.lines("consumer.stopped")[0]["reconnects"] == 0
    assert campaign.report().handled == set(range(SENT))


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_what_a_connection_lost_in_the_drain_takes_back_is_named_too(
    on_rabbit: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F3, F5, D-11: running or only buffered, each has its line, and each is counted once."""
    campaign = on_rabbit("drained")
    campaign.send(3, **ALWAYS_STUCK)
    with Proxy(campaign.place.url) as proxy:
        url = proxy.url_for(campaign.place.url)
        options = ("--prefetch", "3", "--drain-timeout", "1s")
        process = campaign.consume(chronicle, *options, syncer=syncer, url=url)
        campaign.wait_started(1)
        process.signal(signal.SIGTERM)
        unsettled = process.wait_for_line("consumer.stopping")["unsettled"]
        proxy.cut()
        assert process.wait(30) == 4
    named = sorted(line["delivery_tag"] for line in process.lines("message.left"))
    assert len(named) >= unsettled
    assert named == list(range(1, process.lines("consumer.stopped")[0]["unfinished"] + 1))
    report = campaign.report()
    assert (report.lost, sorted(report.queued)) == ([], [0, 1, 2])


@pytest.mark.parametrize(("syncer", "number"), [("sync", signal.SIGTERM), ("blocking", signal.SIGINT)])
def test_a_second_signal_ends_the_process_at_once(
    campaign: Campaign, chronicle: StartChronicle, syncer: str, number: signal.Signals
) -> None:
    """F3, X5: 128 + n, whatever the syncer is doing, and the message is in the queue again."""
    campaign.send(1, **ALWAYS_STUCK)
    process = campaign.consume(chronicle, "--drain-timeout", "10m", syncer=syncer)
    campaign.wait_started(1)
    process.signal(number)
    process.wait_for_line("consumer.stopping")
    process.signal(number)
    assert process.wait(30) == 128 + number
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (0,))
