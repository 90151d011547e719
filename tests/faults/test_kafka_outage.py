"""F4, F11 and K7: brokers stop, die, freeze and return; consumers outlive it, and say little meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from support import proc
from support.checker import Campaign
from support.fixtures import StartChronicle, StartKafka
from support.kafka_server import KafkaServer
from support.process import ChronicleProcess
from support.topic_stage import campaign_at
from support.waiting import wait_for

CONCURRENCY: Final = 4
OPTIONS: Final = ("--concurrency", str(CONCURRENCY))
SOON: Final = 6.0  # the longest pause between two tries of the client is one second


@pytest.fixture(scope="module")
def server(private_kafka: StartKafka) -> KafkaServer:
    return private_kafka()


@pytest.fixture(autouse=True)
def _whole(server: KafkaServer) -> None:
    """Whatever the test before did, the server runs."""
    if not server.running:
        server.start()


def at_work(campaign: Campaign, chronicle: StartChronicle, syncer: str = "sync") -> ChronicleProcess:
    """A consumer in the middle of its messages."""
    process = campaign.consume(chronicle, *OPTIONS, syncer=syncer)
    process.wait_for_line("consumer.ready")
    campaign.send(300, seconds=0.02)
    campaign.wait_ended(50)
    return process


def finish(campaign: Campaign, process: ChronicleProcess, server: KafkaServer) -> None:
    """Let it come back and settle everything, and stop it."""
    campaign.wait_all_ended()
    wait_for(lambda: not lag(campaign, server), 30, "everything committed", every=0.1)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.stderr


def lag(campaign: Campaign, server: KafkaServer) -> int:
    return server.topics.lag(f"chronicle.{campaign.queue}", campaign.queue)


def assert_nothing_lost(campaign: Campaign, repeats: int) -> None:
    report = campaign.report()
    assert (report.lost, report.unexpected, report.queued) == ([], [], ())
    assert report.repeats <= repeats


def states(process: ChronicleProcess) -> list[tuple[str, str]]:
    return [(line["from"], line["to"]) for line in process.lines("kafka_trigger.state_change")]


@pytest.mark.parametrize(
    ("end", "syncer"),
    [(KafkaServer.stop, "tasked"), (KafkaServer.kill, "sync")],
    ids=["stopped", "killed"],
)
def test_consumers_outlive_a_server_that_goes_in_the_middle_of_work(
    server: KafkaServer,
    chronicle: StartChronicle,
    tmp_path: Path,
    end: Callable[[KafkaServer], None],
    syncer: str,
) -> None:
    """F4, K7, R-002-22: alive, told, back at work; what was in work or settled is not begun again."""
    campaign = campaign_at(server, tmp_path, "outage")
    process = at_work(campaign, chronicle, syncer)
    end(server)
    process.wait_for_line("consumer_poll_failed")
    time.sleep(1.0)
    assert process.running
    server.start()
    process.wait_for_line("kafka.brokers_back")
    campaign.send(20)
    finish(campaign, process, server)
    assert ("Reconnecting", "Polling") in states(process)
    assert_nothing_lost(campaign, repeats=0)


def test_an_outage_is_told_in_few_words_and_its_end_is_noticed(
    server: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """F4, K7: at most one line a second of any kind, no computing, and back at work a moment later."""
    campaign = campaign_at(server, tmp_path, "quiet")
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.send(3)
    campaign.wait_all_ended()
    wait_for(lambda: not lag(campaign, server), 30, "everything committed", every=0.1)
    server.kill()
    process.wait_for_line("consumer_poll_failed")
    began, said, used = time.monotonic(), len(process.lines()), proc.cpu_seconds(process.pid)
    time.sleep(6.0)
    seconds = time.monotonic() - began
    assert len(process.lines()) - said <= seconds
    assert proc.cpu_seconds(process.pid) - used < 1.0
    (told,) = process.lines("consumer_poll_failed")
    assert told["level"] == "warning"
    away = len(process.lines())
    server.start()
    campaign.send(1)
    began = time.monotonic()
    campaign.wait_all_ended()
    assert time.monotonic() - began < SOON
    process.wait_for_line("kafka.brokers_back")
    finish(campaign, process, server)
    between = process.lines()[said:away]
    assert {line["event"] for line in between} <= {"kafka.client", "kafka_trigger.state_change"}
    into = [to for _, to in states(process)]
    assert into.index("Reconnecting") < len(into) - 1 - into[::-1].index("Polling")
    assert_nothing_lost(campaign, repeats=0)


def test_a_consumer_may_be_told_to_give_up(
    server: KafkaServer, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-6, X6: exit 3, and what was settled by then is not begun again."""
    campaign = campaign_at(server, tmp_path, "given-up")
    process = campaign.consume(chronicle, *OPTIONS, "--give-up-after", "2s")
    campaign.send(8)
    campaign.wait_all_ended()
    wait_for(lambda: not lag(campaign, server), 30, "everything committed", every=0.1)
    server.kill()
    told = process.wait_for_line("consumer_poll_failed")
    assert process.wait() == 3, process.stderr
    assert "out of reach" in process.stderr
    ended = process.lines("consumer.stopped")[0]
    assert 2.0 <= seconds_between(told, ended) <= 7.0
    server.start()
    assert_nothing_lost(campaign, repeats=0)


@pytest.mark.parametrize("gone", [KafkaServer.kill, KafkaServer.freeze], ids=["killed", "frozen"])
def test_a_stop_while_the_brokers_are_away_ends_in_bounded_time(
    server: KafkaServer, chronicle: StartChronicle, tmp_path: Path, gone: Callable[[KafkaServer], None]
) -> None:
    """F2, X5, X6: what is finished cannot be committed and comes again: that is no success, and said."""
    campaign = campaign_at(server, tmp_path, "away")
    gate = tmp_path / "gate"
    campaign.send(2, gate=str(gate))
    process = campaign.consume(chronicle, *OPTIONS)
    campaign.wait_started(2)
    gone(server)
    try:
        gate.touch()
        campaign.wait_all_ended()
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        code = process.wait(30)
        took = time.monotonic() - began
    finally:
        if server.running:
            server.thaw()
            server.await_ready()
        else:
            server.start()
    assert took < 8.0
    assert code == 4, process.stderr
    failed = process.lines("offset_commit_failed")
    assert any("did not confirm 2 settled" in line["text"] for line in failed), process.stderr
    assert "2 finished messages may come again" in process.lines("consumer.stopped")[0]["text"]
    report = campaign.report()
    # What the frozen server had in its socket it does when it is thawed.
    assert (report.lost, sorted(report.queued)) == ([], [0, 1] if gone is KafkaServer.kill else [])


def test_a_frozen_server_is_survived(server: KafkaServer, chronicle: StartChronicle, tmp_path: Path) -> None:
    """F11: its connections stay open and silent; nothing that was in work is begun again."""
    campaign = campaign_at(server, tmp_path, "frozen")
    process = at_work(campaign, chronicle)
    server.freeze()
    before, said = proc.cpu_seconds(process.pid), len(process.lines())
    try:
        time.sleep(5.0)
        assert process.running
        assert proc.cpu_seconds(process.pid) - before < 2, "it spins while it waits"
    finally:
        server.thaw()
    others = [line for line in process.lines()[said:] if not line["event"].startswith("message.")]
    assert len(others) <= 8
    finish(campaign, process, server)
    assert_nothing_lost(campaign, repeats=0)


def seconds_between(one: dict[str, str], other: dict[str, str]) -> float:
    return (datetime.fromisoformat(other["ts"]) - datetime.fromisoformat(one["ts"])).total_seconds()
