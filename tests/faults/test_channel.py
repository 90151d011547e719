"""F6, F7 and RB2: the broker takes the channel or the queue away; late results acknowledge nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from support.checker import AtRabbit, Campaign, NewCampaign, wait_for_lines
from support.fixtures import Broker, StartChronicle
from support.proxy import Proxy
from support.rabbit import RabbitNode
from support.waiting import wait_for

QUICK = ("--reconnect-initial", "50ms", "--reconnect-max", "300ms")


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_a_late_result_acknowledges_no_other_message(
    on_rabbit: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """RB2, F12: the tag of the late result belongs to another message by now, which stays unacknowledged."""
    campaign = on_rabbit("late")
    assert isinstance(campaign.place, AtRabbit)
    queues, gate = campaign.place.queues, campaign.folder / "gate"
    with Proxy(queues.url) as proxy:
        campaign.send(1, gate=str(gate))
        process = campaign.consume(
            chronicle, *QUICK, "--concurrency", "2", syncer=syncer, url=proxy.url_for(queues.url)
        )
        campaign.wait_started(1)
        proxy.refuse()
        proxy.cut()
        process.wait_for_line("connection.lost")
        # Somebody else takes the first message, so the first tag of the new channel means another one.
        wait_for(lambda: queues.get_all(campaign.queue), 30, "the first message back in the queue")
        campaign.send(1, seconds=600)
        proxy.accept()
        campaign.wait_started(2)
        gate.touch()
        stale = process.wait_for_line("message.stale")
        assert stale["delivery_tag"] == 1
        assert not stale["acked"]
        process.kill()
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (1,))


def test_a_channel_closed_by_the_broker_is_noticed_and_replaced(
    node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F6, RB3, RB15: the consumer timeout closes the channel alone; the connection looks healthy."""
    campaign = on_rabbit("timeout")
    gate = campaign.folder / "gate"
    campaign.send(1, gate=str(gate))
    with configured(node, {"consumer_timeout": 1000, "channel_tick_interval": 200}):
        # Each lost channel leaves a worker at the gate, and the broker may take a while to be as before.
        process = campaign.consume(chronicle, *QUICK, "--concurrency", "20", "--prefetch", "20")
        lost = process.wait_for_line("connection.lost")
        assert "406" in lost["text"]
        assert "timed out" in lost["text"]
    campaign.send(5)
    campaign.wait_ended(5)
    gate.touch()
    process.wait_for_line("message.stale")
    # A channel made while the timeout was short may still be lost to it, so the end is waited for.
    campaign.wait_all_ended()
    wait_for_empty(node, campaign.queue)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())


@contextmanager
def configured(node: RabbitNode, settings: dict[str, int]) -> Iterator[None]:
    """The broker with these settings, as long as it lasts."""
    before = {name: node.evaluate(f"{{ok, X}} = application:get_env(rabbit, {name}), X") for name in settings}
    configure(node, settings)
    try:
        yield
    finally:
        configure(node, before)


def configure(node: RabbitNode, settings: Mapping[str, int | str]) -> None:
    calls = [f"application:set_env(rabbit, {name}, {value})" for name, value in settings.items()]
    node.evaluate(", ".join(calls))


def wait_for_empty(node: RabbitNode, queue: str) -> None:
    wait_for(lambda: node.counts(queue) == (0, 0), 60, f"nothing left on {queue}")


@pytest.mark.parametrize("quorum", [False, True])
def test_a_deleted_queue_is_an_error_and_its_return_is_noticed(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, quorum: bool
) -> None:
    """F7, RB4: the process says so, stays, and goes on when the queue is there again."""
    campaign: Campaign = on_rabbit("deleted", quorum=quorum)
    gate = campaign.folder / "gate"
    process = campaign.consume(chronicle, *QUICK, "--concurrency", "2")
    campaign.send(5)
    campaign.wait_all_ended()
    campaign.send(1, gate=str(gate))
    campaign.wait_started(6)

    rabbit.queues.delete(campaign.queue)
    process.wait_for_line("connection.lost")
    wait_for_lines(process, "connection.retry", 3)
    assert all(line["level"] == "error" for line in process.lines("connection.retry"))
    assert "there is no queue" in process.lines("connection.retry")[0]["text"]
    assert process.running

    gate.touch()  # what was in flight finishes for nobody
    process.wait_for_line("message.stale")
    rabbit.queues.declare(campaign.queue, quorum=quorum)
    campaign.send(5)
    campaign.wait_all_ended()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued, report.repeats) == ([], [], (), 0)
