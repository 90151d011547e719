"""proca's retry loop on a real broker: the queue dead-letters to a fail queue, whose TTL leads back.

The topology is the one a proca server makes (org.N.deliver, org.N.fail, org.N.retry), with a shorter TTL.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pika
import pytest

from chronicle.core.queues import QueueType, dead_letter_queue
from chronicle.core.topology import retry_queue
from support import samples
from support.fixtures import Broker, StartChronicle
from support.queues import Queues
from support.stage import PATIENCE, Stage, counted
from support.waiting import wait_for

BODY: Final = samples.body("action-plain.json")
TTL: Final = 200  # milliseconds

# G7: what a producer may write there; none of it is a count.
FORGED: Final[Mapping[str, object]] = {
    "an empty list": [],
    "a text": "9",
    "a list of numbers": [9],
    "a count that is a text": [{"count": "9", "reason": "expired", "queue": "q"}],
    "a table": {"count": 9},
    "a negative count": [{"count": -9}],
    "a count that is true": [{"count": True}],
}


@dataclass(frozen=True, slots=True)
class Loop:
    """A queue of one organisation, the exchange that feeds it, and the queue where it waits."""

    queues: Queues
    queue: str
    exchange: str
    fail: str

    def publish(self, body: bytes) -> None:
        """As a proca server does: to the exchange, with the action's type and campaign as routing key."""
        with self.queues.channel() as channel:
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish(self.exchange, "register.forests", body, properties, mandatory=True)


def make_loop(queues: Queues, *, quorum: bool) -> Loop:
    org = queues.name("org")
    deliver, fail, retry = f"{org}.deliver", f"{org}.fail", f"{org}.retry"
    queue = f"{org}.cus"
    kind = {"x-queue-type": "quorum"} if quorum else {}
    queues.declare(queue, {"x-dead-letter-exchange": fail, "x-dead-letter-routing-key": queue, **kind})
    queues.declare(fail, {"x-dead-letter-exchange": retry, "x-message-ttl": TTL})
    with queues.channel() as channel:
        for exchange, kind_of in ((deliver, "topic"), (fail, "fanout"), (retry, "direct")):
            channel.exchange_declare(exchange, exchange_type=kind_of, durable=True)
            queues.exchanges.append(exchange)
        channel.queue_bind(queue, deliver, "#")
        channel.queue_bind(fail, fail)
        channel.queue_bind(queue, retry, queue)
    return Loop(queues, queue, deliver, fail)


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path)


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
@pytest.mark.parametrize("way", ["auto", "broker"])
def test_a_message_that_always_fails_is_tried_every_round_and_dropped(
    stage: Stage, quorum: bool, way: str
) -> None:
    """R-004-12 to 14, R-004-34, RB11: 2·(M+1) calls for --max-retries M, then one line at error level.

    D-22: so it is without `QUEUE.dlq`, and, if the operator says so, beside one.
    RB9, RB10: a quorum queue of RabbitMQ 4 keeps the count of a message through its death, and takes one that
    comes round for redelivered. Its first delivery of a round looks like the second, so it is the only try.
    """
    keeps_count = quorum and stage.queues.is_version_4()
    flags = [False, True, True, True] if keeps_count else [False, True] * 3
    loop = make_loop(stage.queues, quorum=quorum)
    if way == "broker":
        stage.queues.declare(dead_letter_queue(loop.queue))
    loop.publish(BODY)
    process = stage.start("no", "--max-retries", "2", "--dead-letters", way, queue=loop.queue)
    dropped = process.wait_for_line("message.dropped", PATIENCE)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0

    calls = stage.calls()
    assert [call["redelivered"] for call in calls] == flags
    tries = len(flags)
    assert counted(process) == {
        "received": tries + 1, "nack": tries, "requeued": tries - 3, "rejected": 3, "dropped": 1
    }  # fmt: skip
    assert dropped["level"] == "error"
    assert dropped["action_id"] == 1001
    assert dropped["reason"] == "3 retries, limit 2"
    assert [stage.queues.depth(queue) for queue in (loop.queue, loop.fail)] == [0, 0]


def test_where_chronicle_can_move_dead_letters_nothing_goes_round(stage: Stage) -> None:
    """D-22: `QUEUE.dlq` wins over the loop, and the log says so; --on-exhausted has a place there, too."""
    loop = make_loop(stage.queues, quorum=False)
    dead = stage.queues.declare(dead_letter_queue(loop.queue))
    loop.publish(BODY)
    exhausted = {"x-death": [{"queue": loop.fail, "reason": "expired", "count": 9}]}
    stage.queues.publish(loop.queue, BODY, headers=exhausted)
    options = ("--max-retries", "2", "--on-exhausted", "dead-letter")
    process = stage.consume("no", *options, queue=loop.queue)
    assert counted(process) == {"received": 3, "nack": 3, "requeued": 1, "dead_lettered": 2}
    (told,) = process.lines("queue.dead_letters_kept")
    assert "a dead-letter exchange of this queue gets none" in told["text"]
    letters = stage.queues.get_all(dead)
    reasons = {letter.headers["x-chronicle-reason"] for letter in letters}
    assert reasons == {"the syncer returned False", "9 retries, limit 2"}
    assert [stage.queues.depth(queue) for queue in (loop.queue, loop.fail)] == [0, 0]


def test_without_a_limit_the_loop_goes_on(stage: Stage) -> None:
    """R-004-12: the guard works only where a limit is set; three rounds later the message still lives."""
    loop = make_loop(stage.queues, quorum=False)
    loop.publish(BODY)
    process = stage.start("no", queue=loop.queue)
    wait_for(lambda: len(stage.calls()) >= 7, PATIENCE, "the first try of the fourth round")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert "dropped" not in counted(process)
    wait_for(lambda: stage.queues.depth(loop.queue) == 1, PATIENCE, "the message to come round")


def test_a_message_that_gets_well_leaves_the_loop(stage: Stage) -> None:
    """R-004-34: what the loop is for."""
    loop = make_loop(stage.queues, quorum=False)
    loop.publish(BODY)
    process = stage.start("well_after_a_round", "--max-retries", "2", queue=loop.queue)
    process.wait_for_line("message.acked", PATIENCE)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert counted(process) == {"received": 3, "ack": 1, "nack": 2, "requeued": 1, "rejected": 1}
    (acked,) = process.lines("message.acked")
    assert acked["routing_key"] == loop.queue  # the retry exchange goes by the queue's name


def test_G7_a_forged_count_is_no_count(stage: Stage) -> None:
    """RB11, Z16: whatever a producer writes into x-death, only a whole number above zero counts."""
    for forged in FORGED.values():
        stage.queues.publish(stage.queue, BODY, headers={"x-death": forged})
    process = stage.consume("yes", "--max-retries", "1")
    assert counted(process) == {"received": len(FORGED), "ack": len(FORGED)}
    assert len(stage.calls()) == len(FORGED)


def test_G7_a_forged_x_death_does_not_keep_a_message_from_the_dead_letters(stage: Stage) -> None:
    """RB11, Z6: the broker may make of the header what it likes; the message is kept.

    What breaks RabbitMQ itself is left out, see test_forged_headers.py.
    """
    breaks = ("a list of numbers", "a count that is a text", "a count that is true")
    harmless = [forged for name, forged in FORGED.items() if name not in breaks]
    for number, forged in enumerate(harmless):
        stage.queues.publish(stage.queue, b"%d" % number, headers={"x-death": forged})
    process = stage.consume("yes", "--max-retries", "1", "--on-invalid", "dead-letter")
    assert process.returncode == 0
    dead = stage.dead_letters(len(harmless))
    assert sorted(letter.body for letter in dead) == [b"%d" % number for number in range(len(harmless))]


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_counted_retries_work_inside_the_loop(stage: Stage, quorum: bool) -> None:
    """D-2, D-3, proca.md §2: two tries, then one a round; waits of our own are no rounds of the loop."""
    loop = make_loop(stage.queues, quorum=quorum)
    waiting = retry_queue(loop.queue, 0.1, QueueType.QUORUM if quorum else QueueType.CLASSIC)
    stage.queues.declare(waiting.name, waiting.arguments)
    loop.publish(BODY)
    options = ("--on-failure", "retry:2", "--retry-delay", "100ms", "--max-retries", "1")
    process = stage.start("no", *options, queue=loop.queue)
    dropped = process.wait_for_line("message.dropped", PATIENCE)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0

    assert [call["attempts"] for call in stage.calls()] == [1, 2, 2]
    assert dropped["reason"] == "2 retries, limit 1"
    assert counted(process) == {"received": 4, "nack": 3, "retried": 1, "rejected": 2, "dropped": 1}
    assert [stage.queues.depth(queue) for queue in (loop.queue, loop.fail, waiting.name)] == [0, 0, 0]
