"""S-e and S-f: dead letters that cannot be written, a full server, and entries that vanish while in work."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from support.checker import NewCampaign
from support.fixtures import StartChronicle, StartRedis
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.stream_hands import hands
from support.waiting import wait_for

OPTIONS: Final = ("--concurrency", "4", "--prefetch", "4", "--claim-idle", "2s", "--drain-timeout", "2s")
SOON: Final = 10.0


@pytest.fixture(scope="module")
def server(private_redis: StartRedis) -> RedisServer:
    return private_redis()


@contextmanager
def without_memory(server: RedisServer) -> Iterator[None]:
    """The server has no memory left for a while, and evicts nothing."""
    server.configure(maxmemory="1", maxmemory_policy="noeviction")
    try:
        yield
    finally:
        server.configure(maxmemory="0")


def stop(process: ChronicleProcess) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait() in (0, 4)


def test_a_dead_letter_that_cannot_be_written_stays_pending(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-e, S6: an error in the log, the others are handled, and nothing is lost."""
    campaign = on_redis("wrong-type", server=server)
    process = campaign.consume(chronicle, *OPTIONS, "--on-failure", "dead-letter")
    process.wait_for_line("consumer.ready")  # at the start it would have been refused
    with server.client() as client:
        client.set(campaign.dead, "not a stream")
    campaign.send(1, answer="false")
    campaign.send(5)
    wait_for(lambda: len(campaign.ended()) == 5, SOON, "the others to be handled")
    wait_for(lambda: complaints(process), SOON, "an error")
    assert process.running
    assert campaign.started()[0] <= 2, "it spins"
    wait_for(lambda: len(server.streams.pending(campaign.queue)) == 1, SOON, "one pending")
    stop(process)
    server.streams.delete(campaign.dead)
    report = campaign.report()
    assert (report.lost, report.queued) == ([], (0,))


def test_a_full_server_keeps_what_should_be_a_dead_letter(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-e: the entry stays pending as long as the server has no room for its dead letter."""
    campaign = on_redis("oom", server=server)
    gate = campaign.folder / "gate"
    campaign.send(1, answer="false", gate=str(gate))
    process = campaign.consume(chronicle, *OPTIONS, "--on-failure", "dead-letter")
    campaign.wait_started(1)
    with without_memory(server):
        gate.touch()
        wait_for(lambda: complaints(process), SOON, "an error")
        assert process.running
        assert [one.count for one in server.streams.pending(campaign.queue)] == [1]
    campaign.send(1)
    campaign.wait_ended(1)
    stop(process)
    assert campaign.report().lost == []


def test_consuming_goes_on_while_the_server_is_full(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """F10: reading and acknowledging need no memory, so a full server can be emptied."""
    campaign = on_redis("full", server=server)
    campaign.send(50, seconds=0.1)
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(4)
    with without_memory(server):
        campaign.wait_all_ended(30)
        wait_for(lambda: not server.streams.pending(campaign.queue), SOON, "everything acknowledged")
        assert not process.lines("connection.lost")
    stop(process)
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)


def test_a_slow_syncer_is_not_robbed_at_a_full_server(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S4: saying that an entry is in work needs no memory either."""
    campaign = on_redis("slow-full", server=server)
    campaign.send(2, seconds=6)
    slow = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(2)
    idle = campaign.consume(chronicle, *OPTIONS)
    idle.wait_for_line("consumer.ready")
    with without_memory(server):
        campaign.wait_all_ended(30)
    for process in (slow, idle):
        stop(process)
    assert set(campaign.started().values()) == {1}


def test_entries_deleted_while_they_are_pending_are_counted_and_never_handled(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-f, S8: the syncer never gets an empty message, and nothing stays pending."""
    campaign = on_redis("deleted", server=server)
    campaign.send(6)
    held = server.streams.read(campaign.queue, "dead", 6)
    with server.client() as client:
        client.xdel(campaign.queue, held[0].id, held[3].id)
    campaign.sent -= {0, 3}
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_all_ended(SOON)
    assert sum(line["count"] for line in process.lines("redis.lost_trimmed")) == 2
    wait_for(lambda: not server.streams.pending(campaign.queue), SOON, "everything settled")
    stop(process)
    assert sorted(campaign.started()) == [1, 2, 4, 5]
    assert not process.lines("message.dead_lettered")


def test_an_entry_deleted_while_its_syncer_works_is_settled(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S-f: its dead letter is written from what was received; its acknowledgement is as good as any."""
    campaign = on_redis("trimmed", server=server)
    gate = campaign.folder / "gate"
    campaign.send(1, gate=str(gate))
    campaign.send(1, gate=str(gate), answer="false")
    process = campaign.consume(chronicle, *OPTIONS, "--on-failure", "dead-letter")
    campaign.wait_started(2)
    with server.client() as client:
        client.xtrim(campaign.queue, maxlen=0, approximate=False)
    gate.touch()
    wait_for(lambda: server.streams.length(campaign.dead) == 1, SOON, "the dead letter")
    wait_for(lambda: not server.streams.pending(campaign.queue), SOON, "everything settled")
    stop(process)
    report = campaign.report()
    assert (report.lost, report.dead) == ([], frozenset({1}))


def test_entries_trimmed_before_they_were_read_are_told(
    server: RedisServer, on_redis: NewCampaign, chronicle: StartChronicle
) -> None:
    """S8: a MAXLEN that eats unread entries loses them without a trace, unless somebody looks."""
    campaign = on_redis("eaten", server=server)
    gate = campaign.folder / "gate"
    campaign.send(4, gate=str(gate))
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(4)
    campaign.send(40)
    with server.client() as client:
        client.xtrim(campaign.queue, maxlen=10, approximate=False)
    told = process.wait_for_line("redis.unread_trimmed", 30)
    assert (told["level"], told["count"]) == ("error", 30)
    gate.touch()
    campaign.sent -= set(range(4, 34))
    campaign.wait_all_ended(SOON)
    stop(process)
    assert campaign.report().lost == []


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "under-way"])
def test_what_a_full_server_refused_goes_back_at_the_end(
    server: RedisServer, on_redis: NewCampaign, refused: bool
) -> None:
    """D-11, S-e: whoever looks next has it at once, and does not wait for --claim-idle."""
    campaign = on_redis("left", server=server)
    campaign.send(1)
    with hands(server, campaign.queue) as consumer:
        (delivery,) = consumer.get(1)
        with without_memory(server):
            consumer.give(delivery, Action.DEAD_LETTER)
            if refused:
                consumer.hear("redis.out_of_memory")
            assert consumer.settle(delivery, Action.LEAVE) is Fate.DONE
            consumer.hear("redis.out_of_memory")
        consumer.leave()
    (left,) = server.streams.pending(campaign.queue)
    assert (left.count, left.idle > 1000) == (0, True)


def complaints(process: ChronicleProcess) -> list[str]:
    return [line["event"] for line in process.lines() if line["level"] in ("error", "critical")]
