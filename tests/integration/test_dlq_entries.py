"""A dead letter without an action id can be told from the others, and selected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chronicle.transports.catalog import open_publisher
from chronicle.transports.seam import Connector, Outgoing
from support.cli import run
from support.fixtures import Broker, Kafka, StartChronicle
from support.redis_server import RedisServer
from support.stream_stage import StreamStage

GARBAGE = [Outgoing(b"garbage %d" % number) for number in range(3)]


def shown(folder: Path, connector: Connector, *args: str) -> list[dict[str, Any]]:
    env = {"CHRONICLE_URL": connector.url}
    said = run("dlq", "show", "--queue", connector.queue, "--json", *args, cwd=folder, env=env)
    assert said.code == 0, said.err
    return [json.loads(line) for line in said.out.splitlines()]


def selects_one(folder: Path, connector: Connector, entry: str) -> None:
    """Show it, and drop it alone."""
    env = {"CHRONICLE_URL": connector.url, "CHRONICLE_QUEUE": connector.queue}
    match = ("--match", f"entry={entry}")
    assert [one["entry"] for one in shown(folder, connector, *match)] == [entry]
    page = run("dlq", "show", *match, cwd=folder, env=env).out.splitlines()
    assert any(line.split()[:2] == ["entry", entry] for line in page)
    dropped = run("dlq", "drop", *match, "--yes", "--no-export", cwd=folder, env=env)
    assert dropped.out.startswith("1 dead letter dropped")
    assert entry not in [one["entry"] for one in shown(folder, connector)]


def test_the_embedded_queue(tmp_path: Path) -> None:
    connector = Connector(f"local:{tmp_path / 'q.db'}", "q")
    with open_publisher(Connector(connector.url, "q.dlq")) as publisher:
        publisher.publish(GARBAGE)
    entries = [one["entry"] for one in shown(tmp_path, connector)]
    assert len(set(entries)) == 3
    selects_one(tmp_path, connector, entries[1])
    assert shown(tmp_path, connector, "--match", "entry=none") == []
    assert run("dlq", "list", "--queue", "q", "--match", "entry=,", cwd=tmp_path).code == 2


def test_redis(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> None:
    """By its id in the dead letters, and by the one that the log named when it died."""
    stage = StreamStage(redis_server, chronicle, tmp_path)
    logged = stage.publish({"n": 1}, {"n": 2})
    assert stage.consume("no", "--on-failure", "dead-letter").returncode == 0
    connector = Connector(redis_server.url, stage.stream)
    letters = shown(tmp_path, connector)
    assert [one["entry_before"] for one in letters] == logged
    (found,) = shown(tmp_path, connector, "--match", f"entry={logged[1]}")
    assert found["entry"] == letters[1]["entry"] != logged[1]
    selects_one(tmp_path, connector, found["entry"])


def test_kafka(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topics.make(kafka.topics.name())
    connector = Connector(kafka.url, topic)
    kafka.topics.make(f"{topic}.dlq")
    with open_publisher(Connector(kafka.url, f"{topic}.dlq")) as publisher:
        publisher.publish(GARBAGE)
    entries = sorted(one["entry"] for one in shown(tmp_path, connector))
    assert all(entry.replace(":", "").isdigit() and ":" in entry for entry in entries)
    selects_one(tmp_path, connector, entries[0])


def test_rabbitmq(rabbit: Broker, tmp_path: Path) -> None:
    """By the message id, if the producer gave it one; what is also in the message is masked."""
    queue = rabbit.queues.declare(rabbit.queues.name())
    rabbit.queues.declare(f"{queue}.dlq")
    connector = Connector(rabbit.url, queue)
    with open_publisher(Connector(rabbit.url, f"{queue}.dlq")) as publisher:
        publisher.publish(
            [
                Outgoing(b"garbage", {}, {"message_id": "m-17"}),
                Outgoing(b"garbage"),
                Outgoing(b'{"email": "canary@example.org"}', {}, {"message_id": "canary@example.org"}),
            ]
        )
    assert [one["entry"] for one in shown(tmp_path, connector)][:2] == ["m-17", None]
    assert "canary" not in json.dumps(shown(tmp_path, connector))
    selects_one(tmp_path, connector, "m-17")
