"""X7, X5: nobody reads stderr any more, a terminal or a pipe; messages, heartbeats and signals go on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checker import AtRabbit, Campaign, NewCampaign
from support.fixtures import StartChronicle
from support.stalled import KINDS, Stalled, stalled_reader

SENT = 5000  # their lines are more than a pipe or a terminal takes, and more than is kept
HEARTBEAT = 2
JSON = ("--log-format", "json", "--log-level", "debug")
VIEWS = [JSON, ("--log-format", "pretty", "--no-live"), ("--live",)]
NOISY = """
import os, sys, time
def sync(message):
    open(os.environ["JOURNAL"], "a").write(f"start {message['id']} {os.getpid()} {time.time()}\\n")
    print("x" * 1_000_000, file=sys.stderr)
    return True
"""


@pytest.fixture(params=KINDS)
def stalled(request: pytest.FixtureRequest) -> Iterator[Stalled]:
    with stalled_reader(request.param) as made:
        yield made


@pytest.mark.parametrize("syncer", ["sync", "tasked"])
def test_all_messages_are_handled_and_one_signal_ends_the_run(
    in_file: NewCampaign, chronicle: StartChronicle, stalled: Stalled, syncer: str
) -> None:
    """X7, F2: exit 0, everything acknowledged, and of what the reader finds only the end may be torn."""
    campaign = in_file("stalled")
    campaign.send(SENT)
    process = campaign.consume(chronicle, *JSON, syncer=syncer, stderr=stalled.writing)
    campaign.wait_all_ended(120)
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 0
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)
    *whole, _ = stalled.read(quiet=0.5).splitlines()
    assert all(json.loads(line)["event"] for line in whole)


def test_the_broker_keeps_a_consumer_whose_terminal_stands_still(
    on_rabbit: NewCampaign, chronicle: StartChronicle, stalled: Stalled
) -> None:
    """X7, RB5: three heartbeats later it is still there, and works."""
    campaign = on_rabbit("stalled")
    assert isinstance(campaign.place, AtRabbit)
    stalled.fill()
    campaign.send(SENT // 2)
    url = f"{campaign.place.url}?heartbeat={HEARTBEAT}"
    process = campaign.consume(chronicle, *JSON, url=url, stderr=stalled.writing)
    campaign.wait_all_ended(120)
    time.sleep(3 * HEARTBEAT + 1)
    campaign.send(10)
    campaign.wait_all_ended(30)
    assert campaign.place.queues.consumers(campaign.queue) == 1
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 0
    report = campaign.report()
    assert (report.lost, report.queued, report.repeats) == ([], (), 0)


def test_when_the_reader_is_back_it_is_told_what_it_missed(
    in_file: NewCampaign, chronicle: StartChronicle, stalled: Stalled
) -> None:
    """X7: every line is there or counted, and none is torn."""
    campaign = in_file("stalled")
    campaign.send(SENT)
    process = campaign.consume(chronicle, *JSON, stderr=stalled.writing)
    campaign.wait_all_ended(120)
    read = stalled.read(quiet=2.0)
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 0
    lines = [json.loads(line) for line in (read + stalled.read(quiet=0.5)).splitlines()]
    told = [line["lines"] for line in lines if line["event"] == "log.lines_dropped"]
    acked = [line for line in lines if line["event"] == "message.acked"]
    assert len(told) == 2  # when the reader was back, and with the final counters
    assert told[0] == told[1] > 0
    assert SENT <= len(acked) + told[0] < SENT + 100
    assert [line["exit_code"] for line in lines if line["event"] == "consumer.stopped"] == [0]


@pytest.mark.parametrize("view", VIEWS, ids=["json", "pretty", "live"])
@pytest.mark.parametrize("syncer", ["sync", "blocking"])
def test_a_second_signal_ends_the_process_whatever_stderr_does(
    in_file: NewCampaign, chronicle: StartChronicle, stalled: Stalled, syncer: str, view: tuple[str, ...]
) -> None:
    """X5, F3: 128 + n, and the message is in the queue again."""
    stalled.fill()
    campaign = in_file("stalled")
    campaign.send(1, seconds=600)
    process = campaign.consume(
        chronicle, *view, "--drain-timeout", "10m", syncer=syncer, stderr=stalled.writing
    )
    campaign.wait_started(1)
    process.signal(signal.SIGTERM)
    time.sleep(1)  # two at once would be one
    assert process.running
    process.signal(signal.SIGTERM)
    assert process.wait(10) == 143
    assert campaign.report().queued == (0,)


@pytest.mark.parametrize("view", VIEWS, ids=["json", "pretty", "live"])
def test_one_signal_ends_the_run_under_every_view(
    in_file: NewCampaign, chronicle: StartChronicle, stalled: Stalled, view: tuple[str, ...]
) -> None:
    """X7, F2: the terminal was full before the first line; failures are printed there, or would be."""
    stalled.fill()
    campaign = in_file("stalled")
    campaign.send(50, answer="false")
    campaign.send(50)
    options = ("--on-failure", "dead-letter", "--brake", "0")
    process = campaign.consume(chronicle, *view, *options, stderr=stalled.writing)
    campaign.wait_ended(50)
    process.signal(signal.SIGTERM)
    assert process.wait(30) == 0
    report = campaign.report()
    assert (report.lost, report.queued, len(report.dead)) == ([], (), 50)


def test_a_syncer_that_prints_to_a_stalled_terminal_does_not_keep_the_process(
    in_file: NewCampaign, chronicle: StartChronicle, stalled: Stalled, tmp_path: Path
) -> None:
    """X4, F3: it waits in its print for ever; the drain ends in time, with exit 4."""
    (tmp_path / "noisy.py").write_text(NOISY)
    campaign: Campaign = in_file("stalled")
    campaign.send(1)
    process = chronicle(
        "consume", "--queue", campaign.queue, "--schema", "json", "--syncer", "noisy:sync",
        *JSON, "--drain-timeout", "1s",
        env={"JOURNAL": str(campaign.path), "CHRONICLE_URL": campaign.place.url},
        stderr=stalled.writing,
    )  # fmt: skip
    campaign.wait_started(1)
    process.signal(signal.SIGTERM)
    assert process.wait(20) == 4
    assert campaign.report().queued == (0,)


@pytest.mark.parametrize("arguments", [("replay", "--syncer", "x:y", "missing"), ("consume",)], ids=str)
def test_an_error_line_nobody_reads_does_not_keep_the_process(
    chronicle: StartChronicle, stalled: Stalled, arguments: tuple[str, ...]
) -> None:
    """X6: the exit code tells."""
    stalled.fill()
    process = chronicle(*arguments, stderr=stalled.writing)
    assert process.wait(20) == 2
    assert os.get_blocking(stalled.writing)
