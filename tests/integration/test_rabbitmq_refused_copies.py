"""A copy that its new queue does not take is the trouble of its own message (RB7), through the command."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.queues import dead_letter_queue, retry_queue_name
from chronicle.core.topology import retry_queue
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.retrying import DELAYS, options, prepare
from support.stage import PATIENCE, Stage, counted
from support.waiting import wait_for

BODIES: Final = [json.dumps({"id": number, "ok": number != 3}).encode() for number in range(8)]
WORK: Final = ("--schema", "json", "--concurrency", "4")


class Troubled(Stage):
    """A queue whose dead letters go to a queue that is full: all messages but one are healthy."""

    def __init__(self, broker: Broker, chronicle: StartChronicle, folder: Path) -> None:
        super().__init__(broker, chronicle, folder)
        prepare(self.queues, self.queue)
        self.dead = dead_letter_queue(self.queue)
        self.queues.delete(self.dead)
        self.queues.declare(self.dead, {"x-max-length": 1, "x-overflow": "reject-publish"})
        self.queues.publish(self.dead, b"there first")

    def handled(self) -> Counter[int]:
        return Counter(call["message"]["id"] for call in self.calls())


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Troubled:
    return Troubled(rabbit, chronicle, tmp_path)


def refused(process: ChronicleProcess) -> list[dict[str, Any]]:
    return process.lines("message.copy_refused")


def wait_for_refusals(process: ChronicleProcess, count: int) -> None:
    wait_for(lambda: len(refused(process)) >= count, PATIENCE, f"{count} refusals", every=0.05)


def assert_undisturbed(process: ChronicleProcess) -> None:
    assert not process.lines("connection.lost")
    assert len(process.lines("consumer.ready")) == 1


def test_a_full_dead_letter_queue_holds_up_its_own_message_alone(rabbit: Broker, stage: Troubled) -> None:
    """RB7, R-003-24: seven of eight are acked once, one waits loudly and arrives when there is room."""
    stage.publish(*BODIES)
    process = stage.start("as_told", *options(1), *WORK)
    wait_for_refusals(process, 3)
    assert stage.handled() == Counter(range(8))
    assert rabbit.node.counts(stage.queue) == (0, 1)
    assert len(process.lines("message.acked")) == 7
    assert not process.lines("message.dead_lettered")

    lines = refused(process)
    assert [line["attempt"] for line in lines[:3]] == [1, 2, 3]
    assert all(line["level"] == "error" for line in lines)
    assert lines[0]["delay_ms"] < lines[1]["delay_ms"] < lines[2]["delay_ms"]
    assert {(line["queue"], line["target"]) for line in lines} == {(stage.queue, stage.dead)}
    assert len({line["delivery_tag"] for line in lines}) == 1

    assert [fetched.body for fetched in stage.queues.get_all(stage.dead)] == [b"there first"]
    (letter,) = stage.dead_letters(1)
    assert json.loads(letter.body)["id"] == 3
    wait_for(lambda: rabbit.node.counts(stage.queue) == (0, 0), PATIENCE, "the source's ack")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert counted(process) == {"received": 8, "ack": 7, "nack": 1, "dead_lettered": 1}
    assert_undisturbed(process)


def test_a_stop_does_not_wait_for_a_refused_copy_beyond_its_deadline(stage: Troubled) -> None:
    """D-11, X6: it goes back as it came, and the exit code says so."""
    stage.publish(*BODIES)
    process = stage.start("as_told", *options(1), *WORK, "--drain-timeout", "1s")
    wait_for_refusals(process, 1)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 4
    assert_undisturbed(process)
    assert [line["reason"] for line in process.lines("message.left")] == ["interrupted"]
    (left,) = stage.left(1)
    assert json.loads(left.body)["id"] == 3


def test_a_retry_queue_that_is_deleted_and_made_again(stage: Troubled) -> None:
    """RB7: the broker confirms what it could not route; the message waits for its queue to come back."""
    process = stage.start("as_told", *options(5), *WORK)
    process.wait_for_line("consumer.ready", PATIENCE)
    stage.queues.delete(retry_queue_name(stage.queue, DELAYS[0]))
    stage.publish(*BODIES)
    wait_for_refusals(process, 2)
    assert all("is gone" in line["text"] for line in refused(process))
    wait_for(lambda: len(process.lines("message.acked")) == 7, PATIENCE, "seven acks")
    assert not process.lines("message.retried")

    again = retry_queue(stage.queue, DELAYS[0])
    stage.queues.declare(again.name, again.arguments)
    wait_for(lambda: process.lines("message.retried"), PATIENCE, "the retry")
    process.signal(signal.SIGTERM)
    process.wait(PATIENCE)
    assert stage.handled()[0] == 1
    assert_undisturbed(process)
