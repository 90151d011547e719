"""`dlq` on a queue of which nothing has died: good news everywhere, unless a name is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.transports.catalog import declare_topology, open_publisher
from chronicle.transports.seam import Connector
from support.cli import run

BROKERS = ("local", "rabbit", "redis", "kafka")


@pytest.fixture(params=BROKERS)
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> Connector:
    """An empty queue without a place for dead letters."""
    match request.param:
        case "local":
            made = Connector(f"local:{tmp_path / 'q.db'}", "orders")
            with open_publisher(made) as publisher:
                publisher.publish([])
        case "rabbit":
            rabbit = request.getfixturevalue("rabbit")
            made = Connector(rabbit.url, rabbit.queues.declare(rabbit.queues.name()))
        case "redis":
            made = Connector(request.getfixturevalue("redis_server").url, "chronicle.test.nothing-died")
            declare_topology(made)
        case _:
            kafka = request.getfixturevalue("kafka")
            made = Connector(kafka.url, kafka.topics.make(kafka.topics.name()))
    return made


def test_nothing_has_died(connector: Connector, tmp_path: Path) -> None:
    """0, so that whoever watches a healthy queue is not alarmed."""
    env = {"CHRONICLE_URL": connector.url, "CHRONICLE_QUEUE": connector.queue}
    (tmp_path / "crm.py").write_text("def sync(message):\n    return True\n")
    dead = f"{connector.queue}.dlq"
    for command, says in (
        (("list",), f"{dead}: 0 dead letters of {connector.queue}"),
        (("show",), f"0 shown of 0 in {dead}"),
        (("export", "dead.jsonl"), "0 dead letters to write: dead.jsonl was not created"),
        (("redrive",), "0 dead letters redriven, confirmed"),
        (("redrive", "--verify", "crm.py:sync", "--yes"), "0 dead letters handled and removed"),
        (("drop", "--yes"), f"0 dead letters dropped from {dead}"),
    ):
        said = run("dlq", *command, cwd=tmp_path, env=env)
        assert (said.code, said.out) == (0, f"{says}\n"), (command, said.err)
        assert f"there is no {dead}: nothing has died yet" in said.err


def test_a_slip_in_a_name_is_noticed(connector: Connector, tmp_path: Path) -> None:
    """2: neither the queue nor its dead letters, or not the dead letters that were named."""
    env = {"CHRONICLE_URL": connector.url}
    said = run("dlq", "list", "--queue", "odrers", cwd=tmp_path, env=env)
    assert said.code == 2
    assert "there is no queue 'odrers', and no dead-letter queue 'odrers.dlq'" in said.problems[0]
    said = run("dlq", "list", "--queue", connector.queue, "--dlq", "daed", cwd=tmp_path, env=env)
    assert (said.code, "there is no dead-letter queue 'daed'" in said.err) == (2, True)
