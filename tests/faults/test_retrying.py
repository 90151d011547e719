"""F1, F2, F4, F7 and F10 with `--on-failure retry:N`: whatever breaks between two queues, nothing is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chronicle.core.outcome import Action, Failed, Synced, Verdict
from chronicle.core.policy import ACKED
from chronicle.core.queues import dead_letter_queue, retry_queue_name
from chronicle.core.settlement import Fate, Settlement
from chronicle.core.topology import retry_queue
from chronicle.errors import ConnectionLost
from chronicle.transports.rabbitmq import courier, parameters
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.seam import Closing, Connector
from support.checker import Campaign, NewCampaign, wait_for_lines
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.proxy import Mode, Proxy
from support.queues import Queues
from support.rabbit import RabbitNode
from support.retrying import DELAYS, options, prepare, waiting
from support.waiting import wait_for

PATIENCE = 180.0
MESSAGES = 100
WORK = ("--concurrency", "4", "--reconnect-max", "500ms")


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


def made(
    on_rabbit: NewCampaign, queues: Queues, delays: Sequence[float] = DELAYS, *, quorum: bool = False
) -> Campaign:
    """A campaign on a queue that is ready for retries."""
    campaign = on_rabbit("retries", quorum=quorum)
    campaign.dead = prepare(queues, campaign.queue, delays, quorum=quorum)
    return campaign


def begin(
    campaign: Campaign, chronicle: StartChronicle, *options: str, syncer: str = "sync", url: str = ""
) -> ChronicleProcess:
    process = campaign.consume(chronicle, *options, syncer=syncer, url=url)
    process.wait_for_line("consumer.ready", PATIENCE)
    return process


def finish(
    campaign: Campaign, process: ChronicleProcess, queues: Queues, delays: Sequence[float] = DELAYS
) -> None:
    """All is handled in the end, nothing waits anywhere, and nothing was lost on the way."""
    campaign.wait_all_ended(PATIENCE)
    wait_for(lambda: not waiting(queues, campaign.queue, delays), PATIENCE, "copies to come back")
    wait_for(lambda: not queues.depth(campaign.queue), PATIENCE, "the queue to be empty")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    report = campaign.report()
    assert (report.lost, report.unexpected) == ([], [])


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_connections_cut_again_and_again(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, quorum: bool
) -> None:
    """RB6, RB7: consumer and courier go together; each message fails twice and is handled in the end."""
    with Proxy(rabbit.url) as proxy:
        campaign = made(on_rabbit, rabbit.queues, quorum=quorum)
        campaign.send(MESSAGES, tries=3)
        url = proxy.url_for(rabbit.url)
        process = begin(campaign, chronicle, *options(50), *WORK, syncer="patient", url=url)
        for seen in (10, 40, 70, 100):
            campaign.wait_started(seen, PATIENCE)
            wait_for(lambda: proxy.connections >= 2, PATIENCE, "consumer and courier")
            proxy.cut()
        finish(campaign, process, rabbit.queues)
        assert process.lines("connection.lost")


def test_the_courier_alone_is_cut_off(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """RB6: its end is the consumer's end, and both come back."""
    campaign = made(on_rabbit, rabbit.queues)
    campaign.send(MESSAGES, tries=3)
    tag = ("--tag", campaign.queue)
    process = begin(campaign, chronicle, *options(50), *WORK, *tag, syncer="patient")
    campaign.wait_started(20, PATIENCE)
    listed = rabbit.node.ctl("list_connections", "--silent", "pid", "client_properties").splitlines()
    (courier,) = [line.split("\t")[0] for line in listed if f"{campaign.queue} courier" in line]
    rabbit.node.ctl("close_connection", courier, "a test")
    lost = process.wait_for_line("connection.lost", PATIENCE)
    assert ", publishing: " in lost["text"]
    finish(campaign, process, rabbit.queues)


def test_killed_between_publishing_and_acknowledging(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """F1: the copy is there, its confirmation never came, so the source is there too. Twice, not never."""
    with Proxy(rabbit.url) as proxy:
        campaign = made(on_rabbit, rabbit.queues, (60.0,))
        gate = tmp_path / "gate"
        campaign.send(1, gate=str(gate), answer="false")
        url = proxy.url_for(rabbit.url)
        process = begin(campaign, chronicle, *options(3, (60.0,)), url=url)
        campaign.wait_started(1)
        proxy.set(Mode.DROP_REPLIES)
        gate.touch()
        wait_for(lambda: waiting(rabbit.queues, campaign.queue, (60.0,)) == 1, PATIENCE, "the copy")
        process.kill()
        proxy.cut()
    wait_for(lambda: rabbit.queues.depth(campaign.queue) == 1, PATIENCE, "the source to come back")
    assert waiting(rabbit.queues, campaign.queue, (60.0,)) == 1


def test_killed_again_and_again(rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle) -> None:
    """F1: at whatever point a kill comes, every message is handled in the end."""
    campaign = made(on_rabbit, rabbit.queues)
    campaign.send(MESSAGES, tries=3)
    for seen in (5, 30, 60):
        process = begin(campaign, chronicle, *options(50), *WORK, syncer="patient")
        campaign.wait_started(seen, PATIENCE)
        process.kill()
    process = begin(campaign, chronicle, *options(50), *WORK, syncer="patient")
    finish(campaign, process, rabbit.queues)


def test_a_stop_gives_back_what_was_not_confirmed(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """F2, D-11: a drain waits for confirmations to its deadline, then says that the message went back."""
    with Proxy(rabbit.url) as proxy:
        campaign = made(on_rabbit, rabbit.queues, (60.0,))
        gate = tmp_path / "gate"
        campaign.send(1, gate=str(gate), answer="false")
        stopping = ("--drain-timeout", "1s")
        url = proxy.url_for(rabbit.url)
        process = begin(campaign, chronicle, *options(3, (60.0,)), *stopping, url=url)
        campaign.wait_started(1)
        proxy.set(Mode.BLACK_HOLE)
        gate.touch()
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 4
        assert not process.lines("message.retried")
        proxy.cut()
    # The copy may have got through; the source certainly comes back.
    wait_for(lambda: rabbit.queues.depth(campaign.queue) == 1, PATIENCE, "the source to come back")


def test_a_retry_queue_deleted_under_way(
    rabbit: Broker, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F7, RB7: nothing is acknowledged without a confirmation; errors are told until the queue is back."""
    campaign = made(on_rabbit, rabbit.queues)
    process = begin(campaign, chronicle, *options(50), *WORK, "--prefetch", "5", syncer="patient")
    rabbit.queues.delete(retry_queue_name(campaign.queue, DELAYS[0]))
    campaign.send(5, tries=2)
    wait_for_lines(process, "message.copy_refused", 10, PATIENCE)
    refused = process.lines("message.copy_refused")
    assert all(line["level"] == "error" and "is gone" in line["text"] for line in refused)
    assert len({line["delivery_tag"] for line in refused}) == 5
    assert not process.lines("message.retried")
    assert not process.lines("connection.lost")
    assert rabbit.node.counts(campaign.queue) == (0, 5)

    again = retry_queue(campaign.queue, DELAYS[0])
    rabbit.queues.declare(again.name, again.arguments)
    finish(campaign, process, rabbit.queues)


# A classic retry queue returns messages without confirmation: RabbitMQ 4 loses those whose time is up while
# it stops, whoever put them there. So none of them is due then.
@pytest.mark.parametrize(
    ("quorum", "delays"), [(False, (6.0, 0.3)), (True, DELAYS)], ids=["classic", "quorum"]
)
def test_the_broker_restarts_under_way(
    node: RabbitNode,
    on_rabbit: NewCampaign,
    chronicle: StartChronicle,
    quorum: bool,
    delays: tuple[float, ...],
) -> None:
    """F4: copies that wait for their time survive, and so does everything else."""
    campaign = made(on_rabbit, node.queues, delays, quorum=quorum)
    campaign.send(MESSAGES, tries=3)
    process = begin(campaign, chronicle, *options(50, delays), *WORK, syncer="patient")
    campaign.wait_started(20, PATIENCE)
    node.stop_app()
    wait_for_lines(process, "connection.retry", 1, PATIENCE)
    node.start_app()
    finish(campaign, process, node.queues, delays)


def test_under_a_memory_alarm_retries_wait_and_acks_go_on(
    node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F10, RB6: own publishes wait, nothing unconfirmed is acknowledged, good messages are."""
    campaign = made(on_rabbit, node.queues)
    (bad,) = campaign.send(1, answer="false")
    campaign.send(20)
    with node.memory_alarm():
        process = begin(campaign, chronicle, *options(3), "--prefetch", "4")
        campaign.wait_ended(20, PATIENCE)
        wait_for(lambda: node.counts(campaign.queue) == (0, 1), PATIENCE, "acks of all but one")
        assert waiting(node.queues, campaign.queue) == 0
        assert not process.lines("message.retried")
    wait_for(lambda: node.queues.depth(dead_letter_queue(campaign.queue)) == 1, PATIENCE, "the dead letter")
    assert campaign.started()[bad] == 3
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


@pytest.fixture
def hurried(node: RabbitNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[RabbitTransport]:
    """A consumer beside its courier, turned by the test; an alarm may hold up a copy for a second."""
    for module in (parameters, courier):
        monkeypatch.setattr(module, "BLOCKED_TIMEOUT", 1.0)
    queue = node.queues.declare(node.queues.name("alarm"))
    node.queues.declare(dead_letter_queue(queue))
    node.queues.publish(queue, b"one")
    transport = RabbitTransport(Connector(node.url, queue, 10))
    transport.open(lambda: False)
    yield transport
    transport.close()


@pytest.mark.parametrize("before", [True, False], ids=["opened before", "opened in it"])
def test_an_alarm_may_last_as_long_as_nothing_is_to_be_published(
    node: RabbitNode, hurried: RabbitTransport, before: bool
) -> None:
    """F10, RB6: consuming goes on; an idle courier's connection is worth no redelivery."""
    with node.memory_alarm():
        if not before:
            hurried.close(Closing.LOST)
            hurried.open(lambda: False)
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            hurried.receive(0, 0.1)
    (delivery,) = wait_for(lambda: hurried.receive(1, 0.1), PATIENCE, "the message", every=0)
    (acked,) = hurried.settle([Settlement(delivery, Synced(), ACKED)])
    assert acked.fate is Fate.DONE


def test_in_an_alarm_a_copy_waits_for_a_time(node: RabbitNode, hurried: RabbitTransport) -> None:
    """F10, RB6: bounded, from when it was published; the proof that was held up before it counts nothing."""
    (delivery,) = wait_for(lambda: hurried.receive(1, 0.1), PATIENCE, "the message", every=0)
    with node.memory_alarm():
        time.sleep(2.0)
        began = time.monotonic()
        dead = Verdict(Action.DEAD_LETTER, "no")
        assert not hurried.settle([Settlement(delivery, Failed(), dead)])
        with pytest.raises(ConnectionLost, match=r"accepted no messages.*alarm"):
            wait_for(lambda: hurried.receive(0, 0.1), PATIENCE, "the loss", every=0)
        assert time.monotonic() - began > 0.9
