"""RB13, G6: random header tables and frames, with a seed, through a real broker into the real command."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pytest

from support import proc, raw_amqp, samples
from support.fixtures import Broker, StartChronicle
from support.fuzz import frames, seeds, table
from support.garbler import Garbler
from support.stage import Stage, counted

GOOD: Final = samples.body("action-plain.json")
MESSAGES: Final = 40
BOUND: Final = 160_000_000  # bytes of memory


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path, moved=True)


@seeds(2)
def test_G6_any_headers_a_broker_accepts_harm_nobody(stage: Stage, seed: int) -> None:
    """Everything is handled, on one connection, whoever looks at the headers."""
    luck = Random(seed)
    for _ in range(MESSAGES):
        raw_amqp.publish(stage.queues, stage.queue, GOOD, table(luck))
    process = stage.consume("yes", "--max-retries", "1000000000", "--on-exhausted", "dead-letter")
    assert process.returncode == 0, process.stderr[-2000:]
    counts = counted(process)
    assert counts["received"] == counts["ack"] + counts.get("dead_lettered", 0) == MESSAGES
    assert not process.lines("connection.lost")


@seeds(6)
def test_RB13_any_frames_end_in_a_reconnect_or_in_an_exit_with_a_reason(stage: Stage, seed: int) -> None:
    """No defect, no endless wait, no hoard; and the message is handled or still there."""
    luck = Random(seed)
    stage.publish(GOOD)
    with Garbler(stage.url, lambda channel: frames(luck, channel, 40)) as garbler:
        process = stage.start(
            "yes", "--until-empty", "--max-time", "4s", "--drain-timeout", "1s", "--reconnect-initial", "1ms",
            "--reconnect-max", "50ms",
            env={"CHRONICLE_URL": garbler.url},
        )  # fmt: skip
        assert proc.peak_until_end(process, 60) < BOUND
    assert process.returncode in (0, 1, 3, 4), process.stderr[-2000:]
    assert "Traceback" not in process.stderr
    assert "defect" not in process.stderr
    handled = any(call["message"].get("actionId") == 1001 for call in stage.calls())
    assert handled or [message.body for message in stage.left(1)] == [GOOD]
