"""Bounded runs at Kafka, what an idle consumer costs, and what its log says: places, never keys or bodies."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from support import proc
from support.fixtures import Kafka, StartChronicle
from support.process import ChronicleProcess
from support.topic_stage import PATIENCE, TopicStage
from support.waiting import wait_for

PARTITIONS: Final = 3


@pytest.fixture
def stage(kafka: Kafka, chronicle: StartChronicle, tmp_path: Path) -> TopicStage:
    return TopicStage(kafka.server, chronicle, tmp_path, partitions=PARTITIONS)


def stopped(process: ChronicleProcess) -> dict[str, object]:
    (line,) = process.lines("consumer.stopped")
    return line


def lag(stage: TopicStage) -> int:
    return stage.topics.lag(stage.group, stage.topic)


# --- bounded runs -------------------------------------------------------------------------------------


def test_until_empty_ends_when_everything_is_handled(stage: TopicStage) -> None:
    """R-004-9, K1: a new group handles the backlog; retries are part of it; the next run finds nothing."""
    stage.publish(*({"ok": bool(number % 10)} for number in range(100)))
    process = stage.consume("as_told", "--concurrency", "4")
    assert process.returncode == 0, process.stderr
    assert (stopped(process)["queued"], stopped(process)["ack"], lag(stage)) == (100, 90, 0)
    assert len(stage.calls()) == 110  # each failure is tried once more
    assert len(stage.dead_letters()) == 10
    again = stage.consume("as_told")
    assert again.returncode == 0
    assert (stopped(again)["queued"], stopped(again)["received"]) == (0, 0)


@pytest.mark.parametrize("empty", [False, True], ids=["never written to", "all deleted"])
def test_until_empty_ends_on_an_empty_topic(stage: TopicStage, empty: bool) -> None:
    """R-004-9: also where the records were deleted before anybody read them."""
    if empty:
        stage.publish(*({"n": number} for number in range(30)))
        stage.topics.delete_records(stage.topic, stage.topics.ends(stage.topic))
    began = time.monotonic()
    process = stage.consume("yes")
    assert process.returncode == 0, process.stderr
    assert time.monotonic() - began < 15
    assert stopped(process)["received"] == 0


def test_max_messages_is_exact_and_leaves_the_rest(stage: TopicStage) -> None:
    """R-004-9: what was read ahead is neither handled nor committed."""
    stage.publish(*({"n": number} for number in range(50)))
    process = stage.start("yes", "--max-messages", "20", "--concurrency", "4")
    assert process.wait(PATIENCE) == 0, process.stderr
    assert (len(stage.calls()), lag(stage)) == (20, 30)
    rest = stage.consume("yes")
    assert (stopped(rest)["queued"], len(stage.calls()), lag(stage)) == (30, 50, 0)


def test_idle_timeout_and_max_time_end_a_run(stage: TopicStage) -> None:
    """R-004-9: a code of 0, and everything that came is committed."""
    stage.publish({"n": 1})
    running = [
        stage.start("yes", "--idle-timeout", "1s"),
        stage.start("yes", "--max-time", "2s", "--group", "another"),
    ]
    for process in running:
        assert process.wait(20) == 0, process.stderr
    assert lag(stage) == 0
    assert stage.topics.lag("another", stage.topic) == 0
    assert len(stage.calls()) == 2


# --- idle ---------------------------------------------------------------------------------------------


@pytest.mark.timed
@pytest.mark.parametrize("syncer", ["yes", "async_yes"])
def test_an_idle_consumer_costs_little_and_wakes_at_once(stage: TopicStage, syncer: str) -> None:
    """K3, R-002-15: and a record on an idle topic is handled within 0.2 s."""
    process = stage.start(syncer)
    process.wait_for_line("consumer.ready")
    stage.publish({"sent": time.monotonic()})
    wait_for(lambda: lag(stage) == 0, 30, "the first", every=0.1)
    time.sleep(0.5)
    before = proc.cpu_seconds(process.pid)
    time.sleep(5.0)
    used = proc.cpu_seconds(process.pid) - before
    assert used < 0.25, f"{used:.2f} s of 5"
    waits = []
    for count in range(2, 8):
        stage.publish({"sent": time.monotonic()})
        wait_for(lambda: len(stage.calls()) >= count, 30, "the next")  # noqa: B023
        call = stage.calls()[-1]
        waits.append(call["at"] - call["message"]["sent"])
        time.sleep(0.3)
    assert sorted(waits)[len(waits) // 2] < 0.2, waits
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


# --- the log ------------------------------------------------------------------------------------------

CANARY: Final = "cnry"
FORGERY: Final = '\r\n\x1b[2J{"event": "forged"}\u202e'
CASES: Final = {
    "acked": ("yes", (), 0),
    "returns False": ("no", (), 0),
    "raises": ("raises_all", (), 1),
    "raises, which is a failure": ("raises_all", ("--on-exception", "fail"), 0),
    "dead-letters": ("dead_letters", (), 0),
    "retries": ("retries", (), 0),
    "logs everything": ("complains", (), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_name_the_place_and_never_the_key_or_the_body(stage: TopicStage, case: str) -> None:
    """D-21, Z4, Z5, Z10: at the level debug, in both formats."""
    syncer, options, code = CASES[case]
    secret = f"{CANARY}@example.org{FORGERY}"
    stage.topics.publish(
        stage.topic,
        json.dumps({"email": secret, secret: 1}).encode(),
        keys=[secret.encode()],
        headers=[("who", secret.encode()), (f"{CANARY}-name", b"1")],
        partition=1,
    )
    for number, log_format in enumerate(("json", "pretty")):
        group = ("--group", f"{stage.group}.{number}")
        process = stage.consume(syncer, *options, *group, "--log-level", "debug", "--log-format", log_format)
        assert process.returncode == code, process.stderr
        text = process.printed.decode()
        assert CANARY not in text, text[max(0, text.index(CANARY) - 300) :][:400]
        for steering in ("\x1b[2J", "\r", "\u202e"):
            assert steering not in text
        if log_format == "json":
            lines = [line for line in process.lines() if line["event"].startswith("message.")]
            assert lines
            assert {(line["partition"], line["offset"]) for line in lines} == {(1, 0)}
    assert stage.calls(), "the syncer was never called"
