"""A queue that is out of reach is no missing one, although RabbitMQ answers 404 for both (RB14, D-9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.core.queues import dead_letter_queue, retry_queue_name
from chronicle.errors import BrokerUnreachable
from chronicle.topology import Disabled, QueueOptions, declare
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.rabbitmq.topology import has_queue
from chronicle.transports.seam import Closing, Connector, never
from support import samples
from support.fixtures import Broker, StartChronicle
from support.retrying import prepare
from support.stage import PATIENCE, Stage, counted

DELAY = 0.1
CRASHED = "the broker said 404 NOT_FOUND - .*crashed"
BODY = samples.body("action-plain.json")


@pytest.fixture
def queue(rabbit: Broker) -> str:
    queue = rabbit.queues.declare(rabbit.queues.name("crashed"))
    prepare(rabbit.queues, queue, (DELAY,))
    return queue


@pytest.mark.parametrize("which", ["its own", "retry", "dead letters"])
def test_a_consumer_waits_for_a_queue_that_has_crashed(rabbit: Broker, queue: str, which: str) -> None:
    """Exit 2 would end a run for a trouble that passes, and to reject might delete the dead letters (RB8)."""
    names = {
        "its own": queue,
        "retry": retry_queue_name(queue, DELAY),
        "dead letters": dead_letter_queue(queue),
    }
    transport = RabbitTransport(Connector(rabbit.url, queue, retry_delays=(DELAY,)))
    try:
        with rabbit.node.crashed(names[which]), pytest.raises(BrokerUnreachable, match=CRASHED):
            transport.open(never)
        transport.close(Closing.LOST)
        assert transport.open(never) == 0
    finally:
        transport.close()


def test_nothing_is_declared_while_a_queue_has_crashed(rabbit: Broker, queue: str) -> None:
    """Whether its arguments are the right ones cannot be seen."""
    options = QueueOptions(exchange=f"{queue}.main", dead_letter=Disabled(), retry=None)
    with rabbit.node.crashed(queue), pytest.raises(BrokerUnreachable, match=f"queue {queue}: {CRASHED}"):
        declare(rabbit.url, queue, options)
    assert rabbit.node.api.exchanges(queue) == {}


def test_a_queue_that_has_crashed_is_there(rabbit: Broker, queue: str) -> None:
    connector = Connector(rabbit.url, queue)
    with rabbit.node.crashed(queue):
        assert has_queue(connector)
    assert not has_queue(Connector(rabbit.url, f"{queue}.never"))


def test_a_run_begins_when_the_queue_is_back(
    rabbit: Broker, chronicle: StartChronicle, queue: str, tmp_path: Path
) -> None:
    """D-9: it is tried again for --startup-timeout."""
    stage = Stage(rabbit, chronicle, tmp_path)
    rabbit.queues.publish(queue, BODY)
    with rabbit.node.crashed(queue):
        process = stage.start("yes", "--until-empty", queue=queue)
        process.wait_for_line("connection.retry", PATIENCE)
    assert process.wait(PATIENCE) == 0, process.stderr
    assert counted(process) == {"received": 1, "ack": 1}
