"""S9: a master is killed under load and its replica takes over; a cluster's slots move under load.

What a failover loses: replication is asynchronous, so entries that the dead master had confirmed may be
unknown to the new one, and acknowledgements may be undone. Nothing can handle an entry that is nowhere, so
the checker compares with what survived: everything in the new master's stream, settled or not (settled
entries stay in a stream), must have been handled; an entry may have been handled and not survived.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Final

import pytest
from redis.exceptions import RedisError

from support.checker import Campaign, NewCampaign, wait_for_lines
from support.fixtures import StartChronicle, StartCluster, StartSentinels
from support.process import ChronicleProcess
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.streams import Streams
from support.waiting import wait_for

CONCURRENCY: Final = 4
OPTIONS: Final = (
    "--concurrency", str(CONCURRENCY), "--prefetch", str(CONCURRENCY),
    "--reconnect-initial", "50ms", "--reconnect-max", "300ms", "--claim-idle", "2s",
)  # fmt: skip


@pytest.fixture(scope="module")
def sentinels(private_sentinels: StartSentinels) -> Sentinels:
    return private_sentinels()


@pytest.fixture(scope="module")
def cluster(private_cluster: StartCluster) -> Cluster:
    return private_cluster(durable=True)


@contextlib.contextmanager
def load(campaign: Campaign, streams: Streams, pause: float = 0.005) -> Iterator[None]:
    """Somebody publishes all the time, and goes on with the next message when a server does not answer.

    Whether a message without an answer has arrived, nobody knows: it counts as sent, and `survived` decides.
    """
    over = threading.Event()

    def publish() -> None:
        number = len(campaign.sent)
        while not over.is_set():
            campaign.sent.add(number)
            with contextlib.suppress(RedisError, OSError):
                streams.publish(campaign.queue, json.dumps({"id": number, "seconds": 0.005}).encode())
            number += 1
            time.sleep(pause)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        over.set()
        publisher.join()


def finish(campaign: Campaign, streams: Streams, *processes: ChronicleProcess) -> int:
    """What survived is handled and settled; how many messages were begun more than once."""
    campaign.survived(streams.bodies(campaign.queue))
    campaign.wait_all_ended()
    wait_for(lambda: not streams.pending(campaign.queue), 30, "everything settled")
    for process in processes:
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    return report.repeats


def test_a_killed_master_under_load_loses_nothing_that_survived(
    sentinels: Sentinels, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S9: the consumers find the new master by themselves, twice, and go on."""
    campaign = on_redis("failover", server=sentinels)
    processes = [campaign.consume(chronicle, *OPTIONS, syncer=name) for name in ("sync", "tasked")]
    for process in processes:
        process.wait_for_line("consumer.ready")
    for failovers in (2, 3):
        with load(campaign, sentinels.streams):
            campaign.wait_ended(len(campaign.ended()) + 30)
            sentinels.fail_over()
            for process in processes:
                wait_for_lines(process, "consumer.ready", failovers, 30)
            campaign.wait_ended(len(campaign.ended()) + 30)
        sentinels.restore_replica()
    repeats = finish(campaign, sentinels.streams, *processes)
    assert len(campaign.sent) > 100
    # Undone acknowledgements, of two consumers in the last moment before each of two failovers.
    assert repeats <= 200, repeats


def test_a_master_that_became_a_replica_is_left(
    sentinels: Sentinels, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S9: READONLY is a reason to look for the master again, not to give up."""
    campaign = on_redis("demoted", server=sentinels)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    campaign.send(5)
    campaign.wait_all_ended()
    with sentinels.sentinels[0].client() as client:
        client.execute_command("SENTINEL", "FAILOVER", "chronicle-test")
    sentinels.await_failover()
    with load(campaign, sentinels.streams):
        campaign.wait_ended(30, 30)
    finish(campaign, sentinels.streams, process)


def test_a_cluster_is_consumed_while_its_slots_move(
    cluster: Cluster, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S9: MOVED leads to the node that has the stream now, with all that was pending."""
    campaign = on_redis("moved", server=cluster)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    for moves in range(2, 5):
        with load(campaign, cluster.streams, 0.02):
            campaign.wait_ended(len(campaign.ended()) + 20)
            cluster.move(campaign.queue)
            wait_for_lines(process, "consumer.ready", moves, 30)
            campaign.wait_ended(len(campaign.ended()) + 20)
    repeats = finish(campaign, cluster.streams, process)
    assert repeats == 0


def test_a_killed_node_of_a_cluster_is_waited_for(
    cluster: Cluster, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """F4 in a cluster: the other nodes are there, and have nothing of this stream."""
    campaign = on_redis("node", server=cluster)
    process = campaign.consume(chronicle, *OPTIONS)
    process.wait_for_line("consumer.ready")
    campaign.send(20, seconds=0.02)
    campaign.wait_ended(5)
    node = cluster.node_of(campaign.queue)
    node.kill()
    wait_for_lines(process, "connection.retry", 2)
    node.start()
    cluster.await_health()
    campaign.send(5)
    assert finish(campaign, cluster.streams, process) == 0


def test_a_name_without_a_hash_tag_is_refused_with_one(
    cluster: Cluster, chronicle: StartChronicle, on_redis: NewCampaign
) -> None:
    """S6: the stream and its dead letters might be on different nodes."""
    campaign = on_redis("untagged", server=cluster)
    campaign.queue = "untagged"
    process = campaign.consume(chronicle, *OPTIONS)
    assert process.wait() == 2
    assert "{untagged}" in process.stderr
