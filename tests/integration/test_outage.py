"""A CRM that is down for a while, through the real command, at every broker.

Its messages stay where they are: no dead letter, and no try that counts.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing
from support.fixtures import Broker, Kafka, StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.stage import PATIENCE, counted, stopped
from support.waiting import wait_for

CRM: Final = """
import json
from pathlib import Path
import chronicle

def note(message, delivery):
    with open("calls", "a") as calls:
        calls.write(json.dumps([message["n"], delivery.redelivered, delivery.attempts]) + "\\n")
    return Path("up").exists() and not message.get("poison")

def sync(message, delivery):
    return note(message, delivery)

async def sync_async(message, delivery):
    return note(message, delivery)

def busy(message, delivery):
    if not note(message, delivery):
        raise chronicle.Retry(f"busy, ask again about {message['n']}", after=0.01)
    return True

def unreachable(message, delivery):
    if not note(message, delivery):
        raise ConnectionError(f"no answer about {message['n']}")
    return True
"""
MANY: Final = 25
AT_ONCE: Final = ("--concurrency", "5", "--prefetch", "15")


@dataclass(frozen=True, slots=True)
class Crm:
    """A queue, and a CRM that is down until it is told otherwise."""

    url: str
    queue: str
    chronicle: StartChronicle
    folder: Path

    def publish(self, *messages: dict[str, Any]) -> None:
        with open_publisher(Connector(self.url, self.queue)) as publisher:
            publisher.publish([Outgoing(json.dumps(message).encode()) for message in messages])

    def start(self, syncer: str, *options: str) -> ChronicleProcess:
        (self.folder / "crm.py").write_text(CRM)
        always = ("consume", "--queue", self.queue, "--schema", "json", "--syncer", f"crm.py:{syncer}")
        return self.chronicle(*always, *options, env={"CHRONICLE_URL": self.url}, cwd=self.folder)

    def comes_up(self) -> None:
        (self.folder / "up").touch()

    def calls(self) -> list[list[Any]]:
        """The number of every message that was tried, whether it was redelivered, and which try it was."""
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture(params=["local", "rabbitmq-classic", "rabbitmq-quorum", "redis", "redis-cursor", "kafka"])
def crm(request: pytest.FixtureRequest, chronicle: StartChronicle, tmp_path: Path) -> Crm:
    kind: str = request.param
    if kind == "local":
        return Crm(f"local:{tmp_path / 'queue.db'}", "orders", chronicle, tmp_path)
    if kind.startswith("rabbitmq"):
        broker: Broker = request.getfixturevalue("rabbit")
        queue = broker.queues.name(kind)
        broker.queues.declare_with_dead_letters(queue, quorum=kind == "rabbitmq-quorum")
        return Crm(broker.url, queue, chronicle, tmp_path)
    if kind == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        topic = kafka.topics.make(kafka.topics.name("outage"), 2)
        kafka.topics.make(f"{topic}.dlq", 1)
        return Crm(kafka.url, topic, chronicle, tmp_path)
    server: RedisServer = request.getfixturevalue("redis_server")
    stream = server.streams.make(server.streams.name("outage"))
    return Crm(server.url, stream, chronicle, tmp_path)


def own_options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--no-group",) if "redis-cursor" in request.node.name else ()


def messages(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"n": number} for number in range(first, first + count)]


def is_unharmed(crm: Crm, process: ChronicleProcess, number: int = MANY) -> None:
    """All were synced, and the broker has heard of nothing else."""
    assert process.wait(PATIENCE) == 0, process.stderr
    assert counted(process) == {"received": number, "ack": number}, process.stderr
    assert not [call for call in crm.calls() if call[1] or call[2] != 1]


def test_an_outage_kills_nothing(crm: Crm, request: pytest.FixtureRequest) -> None:
    """Nobody is dead-lettered and no try is lost while the CRM is down; all are synced when it is up."""
    crm.publish(*messages(MANY))
    process = crm.start("sync", "--until-empty", *AT_ONCE, *own_options(request))
    braked = process.wait_for_line("intake.braked", PATIENCE)
    assert (braked["row"], braked["reason"], braked["level"]) == (10, "the syncer returned False", "warning")
    process.wait_for_line("intake.probe_failed", PATIENCE)
    crm.comes_up()
    is_unharmed(crm, process)
    assert len(process.lines("intake.braked")) == len(process.lines("intake.resumed")) == 1
    tried = Counter(number for number, *_ in crm.calls())
    assert len(crm.calls()) <= MANY + 10 + 5 + 6  # those of the row, those under way, and the few tries
    assert len(tried) == MANY


def test_the_further_consumer_goes_again(chronicle: StartChronicle, rabbit: Broker, tmp_path: Path) -> None:
    """The broker counts per consumer, so more room for a while is one more consumer for a while."""
    queue = rabbit.queues.name("wider")
    rabbit.queues.declare_with_dead_letters(queue)
    crm = Crm(rabbit.url, queue, chronicle, tmp_path)
    crm.publish(*messages(MANY))
    process = crm.start("sync")
    process.wait_for_line("intake.braked", PATIENCE)
    assert rabbit.queues.consumers(queue) == 2
    crm.comes_up()
    process.wait_for_line("intake.resumed", PATIENCE)
    wait_for(lambda: rabbit.queues.consumers(queue) == 1, PATIENCE, "one consumer")
    crm.publish(*messages(MANY, first=MANY))
    wait_for(lambda: len(process.lines("message.acked")) == 2 * MANY, PATIENCE, "all acks")
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0, process.stderr


def test_nothing_is_on_its_way_to_a_further_consumer_that_goes(
    chronicle: StartChronicle, rabbit: Broker, tmp_path: Path
) -> None:
    """A quorum queue would take it back, count it as delivered, and call itself empty meanwhile."""
    queue = rabbit.queues.name("goes")
    rabbit.queues.declare_with_dead_letters(queue, quorum=True)
    crm = Crm(rabbit.url, queue, chronicle, tmp_path)
    crm.publish(*messages(20 * MANY))
    process = crm.start("sync", "--until-empty")
    process.wait_for_line("intake.braked", PATIENCE)
    crm.comes_up()
    is_unharmed(crm, process, 20 * MANY)


@pytest.mark.parametrize("syncer", ["busy", "unreachable", "sync_async"])
def test_the_ways_to_fail(chronicle: StartChronicle, tmp_path: Path, syncer: str) -> None:
    """Asking for another try, raising, and on an event loop; the reasons differ by an id only."""
    crm = Crm(f"local:{tmp_path / 'queue.db'}", "orders", chronicle, tmp_path)
    crm.publish(*messages(MANY))
    process = crm.start(syncer, "--until-empty", "--on-exception", "fail", *AT_ONCE)
    process.wait_for_line("intake.probe_failed", PATIENCE)
    crm.comes_up()
    is_unharmed(crm, process)


def test_bad_messages_behind_one_another_are_no_outage(chronicle: StartChronicle, tmp_path: Path) -> None:
    """One behind them succeeds; they have failed by themselves, and die as the policy says."""
    crm = Crm(f"local:{tmp_path / 'queue.db'}", "orders", chronicle, tmp_path)
    crm.comes_up()
    bad = [{"n": number, "poison": True} for number in range(12)]
    crm.publish(*bad, *messages(5, first=12))
    process = crm.start("sync", "--until-empty")
    assert process.wait(PATIENCE) == 0, process.stderr
    assert (stopped(process)["ack"], stopped(process)["dead_lettered"]) == (5, 12)


def test_a_small_window_suffices(crm: Crm, request: pytest.FixtureRequest) -> None:
    """With one worker and a prefetch of two, too: what has failed takes nobody's place."""
    crm.publish(*messages(MANY))
    process = crm.start("sync", "--until-empty", *own_options(request))
    process.wait_for_line("intake.braked", PATIENCE)
    crm.comes_up()
    is_unharmed(crm, process)
