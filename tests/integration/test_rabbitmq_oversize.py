"""A message that is larger than the broker allows is a problem of its own, and never lost (RB7).

The limit is `max_message_size`: 16 MiB by default from RabbitMQ 4.0 on, 128 MiB before. A queue may hold
larger messages than that: they came before the limit was lowered, or the broker upgraded.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.queues import dead_letter_queue
from support.cli import run
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.retrying import options, prepare, waiting
from support.stage import PATIENCE, Stage, counted
from support.waiting import wait_for

LIMIT: Final = 1_500_000
LARGE: Final = json.dumps({"id": 33, "ok": False, "text": "x" * 2_000_000}).encode()
SMALL: Final = [json.dumps({"id": number, "ok": True}).encode() for number in range(8)]
# Where it is looked up changed with the versions.
SET: Final = "application:set_env(rabbit, max_message_size, {0}), persistent_term:put(max_message_size, {0})"
GET: Final = "rabbit_misc:get_env(rabbit, max_message_size, none)"


@pytest.fixture
def lower_limit(rabbit: Broker) -> Iterator[Callable[[], None]]:
    """Make the limit smaller than the large message; it is put back afterwards."""
    usual = rabbit.node.evaluate(GET)
    yield lambda: assert_done(rabbit, LIMIT)
    assert_done(rabbit, int(usual))


def assert_done(rabbit: Broker, limit: int) -> None:
    assert rabbit.node.evaluate(SET.format(limit)) == "ok"


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    stage = Stage(rabbit, chronicle, tmp_path)
    prepare(stage.queues, stage.queue)
    return stage


def test_publish_names_the_size_and_the_setting_and_counts_what_is_there(
    stage: Stage, tmp_path: Path, lower_limit: Callable[[], None]
) -> None:
    """RB7: all before it are on the queue, it and those after it are not, and nothing is uncertain."""
    lower_limit()
    file = tmp_path / "messages.jsonl"
    file.write_bytes(b"\n".join([*SMALL[:5], LARGE, *SMALL[5:]]) + b"\n")
    said = run("publish", "--url", stage.url, "--queue", stage.queue, str(file), cwd=tmp_path)
    assert said.code == 1
    assert f"{len(LARGE)} bytes" in said.err
    assert str(LIMIT) in said.err
    assert "max_message_size" in said.err
    assert f"5 messages on {stage.queue}, confirmed; the rest was not sent" in said.err
    assert [fetched.body for fetched in stage.left(5)] == SMALL[:5]


def test_redrive_leaves_it_where_it_is_and_brings_the_others_back(
    stage: Stage, tmp_path: Path, lower_limit: Callable[[], None]
) -> None:
    """R-004-36, RB7: a letter that no broker connection can carry holds up no other."""
    dead = dead_letter_queue(stage.queue)
    stage.queues.publish(dead, SMALL[0], LARGE, SMALL[1])
    lower_limit()
    said = run(
        "dlq", "redrive", "--url", stage.url, "--queue", stage.queue, "--to", stage.queue, cwd=tmp_path
    )
    assert said.code == 1, said.err
    assert "size that the broker does not accept" in said.err + said.out
    assert [fetched.body for fetched in stage.left(2)] == SMALL[:2]
    assert [fetched.body for fetched in stage.queues.get_all(dead)] == [LARGE]


def refused(process: ChronicleProcess) -> list[str]:
    return [line["text"] for line in process.lines("message.copy_refused")]


@pytest.mark.parametrize("tries", [1, 5], ids=["dead letter", "retry"])
def test_a_copy_that_is_too_large_holds_up_its_own_message_alone(
    stage: Stage, lower_limit: Callable[[], None], tries: int
) -> None:
    """RB7, R-003-24: the broker closes the channel for it; the connection and the other messages go on."""
    also_failing = json.dumps({"id": 9, "ok": False}).encode()
    stage.publish(*SMALL[:3], LARGE, *SMALL[3:], also_failing)
    lower_limit()
    process = stage.start(
        "as_told", *options(tries), "--schema", "json", "--prefetch", "4", "--drain-timeout", "1s"
    )
    wait_for(lambda: len(refused(process)) >= 3, PATIENCE, "three refusals")
    wait_for(lambda: len(process.lines("message.acked")) == len(SMALL), PATIENCE, "the others' acks")
    assert all(str(len(LARGE)) in text and "max_message_size" in text for text in refused(process))
    # The other failure reaches the dead letters, over the channel that was opened again.
    dead = dead_letter_queue(stage.queue)
    wait_for(lambda: stage.queues.depth(dead) == 1, PATIENCE, "the other dead letter")
    assert [fetched.body for fetched in stage.queues.get_all(dead)] == [also_failing]

    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 4  # it went back as it came
    assert not process.lines("connection.lost")
    assert counted(process)["ack"] == len(SMALL)
    assert [call["message"]["id"] for call in stage.calls()].count(33) == 1
    assert [fetched.body for fetched in stage.left(1)] == [LARGE]
    assert waiting(stage.queues, stage.queue) == 0


def test_the_broker_itself_moves_a_dead_letter_of_any_size(
    stage: Stage, lower_limit: Callable[[], None]
) -> None:
    """RB8: the limit is for what clients publish, so such a message has a way out."""
    stage.publish(LARGE)
    lower_limit()
    way = ("--on-failure", "dead-letter", "--dead-letters", "broker")
    process = stage.consume("as_told", *way, "--schema", "json")
    assert counted(process) == {"received": 1, "nack": 1, "rejected": 1}
    assert [letter.body for letter in stage.dead_letters(1)] == [LARGE]
