"""F2, F6, D-9, D-11: a frozen broker, or a peer that says nothing, keeps nobody beyond a limit."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from support.checker import NewCampaign
from support.fixtures import Broker, StartChronicle
from support.rabbit import RabbitNode
from support.retrying import options, prepare

pytestmark = pytest.mark.timed

PATIENCE: Final = 60.0
DRAIN: Final = 3.0
SLACK: Final = 2.5  # beyond a limit: the end of the process on a busy machine


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


@contextmanager
def frozen(node: RabbitNode) -> Iterator[None]:
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


@pytest.mark.parametrize("retrying", [False, True], ids=["plain", "with a courier"])
def test_a_drain_at_a_frozen_broker_keeps_its_deadline(
    node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle, tmp_path: Path, retrying: bool
) -> None:
    """D-11: the cancel is not answered, nothing can be settled, and the time is up all the same."""
    campaign = on_rabbit("frozen")
    prepare(node.queues, campaign.queue)
    gate = tmp_path / "gate"
    campaign.send(3, gate=str(gate), answer="false" if retrying else "true")
    more = options(3) if retrying else ()
    process = campaign.consume(chronicle, *more, "--drain-timeout", f"{DRAIN:.0f}s", "--concurrency", "3")
    campaign.wait_started(3)
    with frozen(node):
        gate.touch()
        begun = time.monotonic()
        process.signal(signal.SIGTERM)
        process.wait(PATIENCE)
        assert time.monotonic() - begun < DRAIN + SLACK


def test_a_bounded_run_that_asks_a_frozen_broker_can_be_stopped(
    node: RabbitNode, on_rabbit: NewCampaign, chronicle: StartChronicle
) -> None:
    """R-004-2: `--until-empty` waits for the broker's word, and a signal ends the wait."""
    campaign = on_rabbit("frozen")
    campaign.send(1, seconds=1.5)
    process = campaign.consume(chronicle, "--until-empty", "--drain-timeout", "1s")
    campaign.wait_started(1)
    with frozen(node):
        time.sleep(2.5)  # the syncer has ended, and the broker is being asked
        assert process.running
        begun = time.monotonic()
        process.signal(signal.SIGTERM)
        process.wait(PATIENCE)
        assert time.monotonic() - begun < 1.0 + SLACK


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"amqp://guest@127.0.0.1:{server.getsockname()[1]}/"


SYNCER: Final = "chronicle_syncers.console:sync"


def test_declaring_at_a_silent_peer_can_be_called_off(chronicle: StartChronicle, silent: str) -> None:
    """R-004-2: SIGTERM is obeyed while `--declare` waits, as it is without."""
    process = chronicle(
        "consume", "--queue", "q", "--syncer", SYNCER, "--declare", env={"CHRONICLE_URL": silent}
    )
    process.wait_for_line("consumer.starting", PATIENCE)
    time.sleep(1.0)
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - begun < SLACK


@pytest.mark.parametrize("command", ["consume", "declare"])
def test_declaring_at_a_silent_peer_keeps_the_startup_timeout(
    chronicle: StartChronicle, silent: str, command: str
) -> None:
    """D-9, X6: exit code 3 when the time is over, not when pika loses patience."""
    consume = ("--syncer", SYNCER, "--declare") if command == "consume" else ()
    begun = time.monotonic()
    process = chronicle(
        command, "--queue", "q", *consume, "--startup-timeout", "2s", env={"CHRONICLE_URL": silent}
    )
    assert process.wait(PATIENCE) == 3
    assert time.monotonic() - begun < 2.0 + SLACK + 1.5  # and the start of an interpreter
    assert "no answer in time" in process.stderr
