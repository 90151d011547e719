"""F13: a syncer that breaks its contract ends the process, whatever the others are doing."""

from __future__ import annotations

import signal
from datetime import datetime

import pytest

from support.checker import Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.process import ChronicleProcess

pytestmark = pytest.mark.timed

ANSWERS = ("raise", "exit", "one", "none", "text")
FINISHED, SLEEPING = 3, 4
# The grace of a fatal exit is 2 s; the others sleep for 600. Anything between tells them apart.
SOON = 30.0


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_a_fatal_answer_ends_the_process_while_others_sleep(
    on_rabbit: NewCampaign, chronicle: StartChronicle, syncer: str
) -> None:
    """F13, X3, X4, D-17: exit 1 soon, finished ones acked, the culprit and the sleepers still there."""
    running = [
        (answer, campaign, consume(campaign, chronicle, answer, syncer))
        for answer in ANSWERS
        for campaign in (on_rabbit(f"fatal-{answer}"),)
    ]
    for answer, campaign, process in running:
        assert process.wait(SOON) == 1, answer
        assert_only_the_finished_are_gone(campaign, process, answer)


def test_an_async_syncer_that_blocks_does_not_delay_a_fatal_exit(
    on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """F13: the culprit has spoken, then another one holds the event loop for ten minutes."""
    campaign = on_rabbit("fatal-blocking")
    campaign.send(1, answer="none")
    campaign.send(1, seconds=600)
    process = campaign.consume(chronicle, "--concurrency", "2", syncer="blocking")
    assert process.wait(SOON) == 1
    report = campaign.report()
    assert (report.lost, sorted(report.queued)) == ([], [0, 1])


@pytest.mark.parametrize("maker", ["in_file", "on_redis", "on_kafka"])
def test_a_fatal_answer_leaves_its_message_in_the_queue(
    request: pytest.FixtureRequest, chronicle: StartChronicle, maker: str
) -> None:
    """F13 on the embedded queue, on a stream, and on a topic: the finished ones are committed."""
    # One partition: of several, one may come when the other has ended everything.
    options = {"partitions": 1} if maker == "on_kafka" else {}
    campaign: Campaign = request.getfixturevalue(maker)("fatal", **options)
    process = consume(campaign, chronicle, "raise", "sync")
    assert process.wait(SOON) == 1
    assert_only_the_finished_are_gone(campaign, process, "raise")


def test_a_fatal_answer_during_a_drain_is_no_success(
    on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """D-17: never 0, even when the stop was asked for before."""
    campaign = on_rabbit("fatal-drain")
    gate = campaign.folder / "gate"
    campaign.send(1, gate=str(gate), answer="none")
    process = campaign.consume(chronicle)
    campaign.wait_started(1)
    process.signal(signal.SIGTERM)
    process.wait_for_line("consumer.stopping")
    gate.touch()
    assert process.wait(SOON) == 1
    assert campaign.report().queued == (0,)


def consume(campaign: Campaign, chronicle: StartChronicle, answer: str, syncer: str) -> ChronicleProcess:
    """Three that finish, four that sleep, and one in their midst that breaks the contract."""
    campaign.send(FINISHED)
    campaign.send(SLEEPING, seconds=600)
    campaign.send(1, seconds=0.2, answer=answer)
    count = str(FINISHED + SLEEPING + 1)
    return campaign.consume(chronicle, "--concurrency", count, "--prefetch", count, syncer=syncer)


def assert_only_the_finished_are_gone(campaign: Campaign, process: ChronicleProcess, answer: str) -> None:
    (fatal,) = process.lines("syncer.fatal")
    (stopped,) = process.lines("consumer.stopped")
    assert seconds_between(fatal["ts"], stopped["ts"]) < SOON
    assert stopped["exit_code"] == 1
    assert stopped["ack"] == FINISHED
    report = campaign.report()
    assert (report.lost, report.unexpected) == ([], []), answer
    assert sorted(report.queued) == list(range(FINISHED, FINISHED + SLEEPING + 1)), answer


def seconds_between(before: str, after: str) -> float:
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
