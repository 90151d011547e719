"""Dead letters while the broker stops, dies or runs out of memory: none is lost, and nothing hangs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from chronicle.core.deadletters.death import REASON
from support.checker import wait_for_lines
from support.deadhouse import DeadHouse
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.rabbit import RabbitNode
from support.waiting import wait_for

# A node needs a quarter of a minute to start, and much longer on a busy machine.
PATIENCE = 180.0
LETTERS = 200
SYNCER = """
import time

def never(message):
    time.sleep(0.2)
    return False
"""


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


@pytest.fixture(params=["classic", "quorum"])
def house(request: pytest.FixtureRequest, node: RabbitNode, tmp_path: Path) -> DeadHouse:
    """A queue with dead letters at a broker that may be broken."""
    (tmp_path / "crm.py").write_text(SYNCER)
    queue = node.queues.declare(node.queues.name("letters"))
    node.queues.declare(f"{queue}.dlq", quorum=request.param == "quorum")
    url = f"{node.url}?heartbeat=2&connection_timeout=1000"
    made = DeadHouse(url, queue, tmp_path, request.param, node.queues)
    made.die(*range(LETTERS), x_chronicle_reason="yesterday's reason")
    return made


def trying(house: DeadHouse, chronicle: StartChronicle, *args: str) -> ChronicleProcess:
    """A verify in the middle of its run."""
    args = ("dlq", "redrive", *house.where, "--verify", "crm:never", "--yes", "--concurrency", "4", *args)
    run = chronicle(*args, env=house.env)
    wait_for_lines(run, "message.dead_lettered", 8, PATIENCE)
    return run


def patient(house: DeadHouse, node: RabbitNode) -> DeadHouse:
    """The same for the test itself: a node that has just started is slow, and nobody tries again here."""
    return replace(house, url=node.url)


def assert_no_defect(run: ChronicleProcess) -> None:
    assert "Traceback" not in run.stderr
    assert "defect" not in run.stderr


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_verify_outlives_a_restart_of_the_broker(
    house: DeadHouse, node: RabbitNode, chronicle: StartChronicle, killed: bool
) -> None:
    """F4, RB19: results that come while the broker is away settle nothing, and the run goes on after."""
    run = trying(house, chronicle, "--startup-timeout", "600s")
    if killed:
        node.kill()
        node.start()
    else:
        node.stop_app()
        try:
            run.wait_for_line("connection.retry")
        finally:
            node.start_app()
    assert run.wait(PATIENCE) == 1
    assert_no_defect(run)
    assert run.lines("connection.lost")
    wait_for(lambda: house.depth(house.dlq) >= LETTERS, PATIENCE, "all to be given back")
    left = patient(house, node).take(house.dlq)
    assert {one.id for one in left} == set(range(LETTERS))
    assert "the syncer returned False" in {one.headers[REASON] for one in left}


def test_a_verify_gives_up_on_a_broker_that_stays_away(
    house: DeadHouse, node: RabbitNode, chronicle: StartChronicle
) -> None:
    """X6: exit code 3 when --startup-timeout is over, and every letter is still there."""
    # One at a time: on a busy machine it takes a while until the broker has stopped.
    run = trying(house, chronicle, "--startup-timeout", "3s", "--concurrency", "1")
    node.stop_app()
    try:
        assert run.wait(60) == 3
    finally:
        node.start_app()
    assert_no_defect(run)
    wait_for(lambda: house.depth(house.dlq) >= LETTERS, PATIENCE, "all to be given back")
    assert {one.id for one in patient(house, node).take(house.dlq)} == set(range(LETTERS))


def test_a_redrive_that_is_held_up_keeps_its_reading_connection(
    house: DeadHouse, node: RabbitNode, chronicle: StartChronicle
) -> None:
    """RB5, RB6: the broker stops who publishes, longer than a heartbeat; the other connection lives."""
    run = chronicle("dlq", "redrive", *house.where, "--rate", "20/s", env=house.env)
    wait_for(lambda: house.depth(house.queue) >= 20, 30, "some to be moved")
    with node.memory_alarm():
        time.sleep(12)  # the broker misses a heartbeat after twice the two seconds
        assert run.running, run.stdout + run.stderr
    assert run.wait(60) == 0, run.stderr
    assert run.stdout.startswith(f"{LETTERS} dead letters redriven, confirmed")
    assert sorted(house.ids(house.queue)) == list(range(LETTERS))
