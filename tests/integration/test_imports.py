"""A run imports what it needs and nothing else: imports are most of the time until the first message."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Final

import pytest

from support import samples
from support.fixtures import Broker, StartChronicle

SYNCER: Final = """
import gc
import os
import sys


def look(message):
    with open("modules", "w") as file:
        print(*sys.modules, sep="\\n", file=file)
    return True


async def look_async(message):
    return look(message)


def look_at_pika(message):
    import pika

    adapters = pika.adapters
    assert adapters.asyncio_connection.AsyncioConnection is adapters.AsyncioConnection
    found = [adapters.AsyncioConnection.__module__, pika.BlockingConnection.__module__]
    with open("modules", "w") as file:
        print(*found, sep="\\n", file=file)
    return not hasattr(pika.adapters, "nothing")


IMPORTING = gc.get_threshold()[0] > 10_000
if "THRESHOLD" in os.environ:
    gc.set_threshold(int(os.environ["THRESHOLD"]), 8, 7)


def look_at_collector(message):
    with open("collector", "w") as file:
        print(IMPORTING, gc.isenabled(), *gc.get_threshold(), gc.get_freeze_count() > 10_000, file=file)
    return True
"""
# What other commands, other brokers, other options or a terminal need; a name stands for its package.
UNNEEDED: Final = frozenset({
    "rich", "nacl", "cryptography", "confluent_kafka", "redis", "dotenv", "difflib",
    "http", "email", "tempfile", "urllib.request",
    "chronicle.captures", "chronicle.deadletters", "chronicle.core.encryption",
    "chronicle.proca.keystore", "chronicle.engine.publication", "chronicle.engine.queue_reader",
    "chronicle_cli.live", "chronicle_cli.passphrase", "chronicle_cli.commands.publish",
    "chronicle_cli.commands.replay", "chronicle_cli.commands.dlq", "chronicle_cli.commands.keys",
    "chronicle_cli.commands.declare", "chronicle_cli.commands.capture",
})  # fmt: skip
ON_RABBIT: Final = frozenset({
    "sqlite3", "secrets", "chronicle.core.record", "chronicle.core.topology",
    "chronicle.transports.local.store",
    "chronicle.transports.kafka.address", "chronicle.transports.kafka.choices",
    "chronicle.transports.kafka.states", "chronicle.transports.redis.address",
    "chronicle.transports.redis.choices", "chronicle.transports.redis.states",
    "chronicle.transports.rabbitmq.courier", "chronicle.transports.rabbitmq.confirms",
    "chronicle.transports.rabbitmq.topology", "chronicle.transports.rabbitmq.preflight",
    "chronicle.transports.rabbitmq.management", "chronicle.transports.rabbitmq.publisher",
    "chronicle.transports.rabbitmq.reader",
})  # fmt: skip
ON_FILE: Final = frozenset({"pika", "chronicle.transports.rabbitmq.consumer"})


def imported(chronicle: StartChronicle, folder: Path, url: str, queue: str, function: str) -> set[str]:
    """What a run over one message has imported, packages included."""
    (folder / "sync.py").write_text(SYNCER)
    arguments = ("--url", url, "--queue", queue, "--syncer", f"sync.py:{function}", "--max-messages", "1")
    run = chronicle("consume", *arguments)
    assert run.wait() == 0, str(run)
    return set((folder / "modules").read_text().split())


def needless(modules: set[str], unneeded: frozenset[str]) -> set[str]:
    return {
        name for name in modules if any(name == other or name.startswith(f"{other}.") for other in unneeded)
    }


@pytest.mark.parametrize("function", ["look", "look_async"])
def test_a_run_on_rabbitmq_imports_nothing_of_other_commands_brokers_and_options(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, function: str
) -> None:
    queue = rabbit.queues.declare(rabbit.queues.name())
    rabbit.queues.publish(queue, samples.body("action-plain.json"))
    found = imported(chronicle, tmp_path, rabbit.url, queue, function)
    assert "pika" in found
    assert needless(found, UNNEEDED | ON_RABBIT) == set()
    assert ("asyncio" in found) == (function == "look_async")
    assert ("chronicle.workers.tasks" in found) == (function == "look_async")
    assert ("chronicle.workers.threads" in found) == (function == "look")


def test_a_syncer_that_uses_pika_itself_finds_all_of_it(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path
) -> None:
    queue = rabbit.queues.declare(rabbit.queues.name())
    rabbit.queues.publish(queue, samples.body("action-plain.json"))
    found = imported(chronicle, tmp_path, rabbit.url, queue, "look_at_pika")
    assert found == {"pika.adapters.asyncio_connection", "pika.adapters.blocking_connection"}


@pytest.mark.parametrize("function", ["look", "look_async"])
def test_a_run_on_the_embedded_queue_needs_no_client_and_only_async_syncers_asyncio(
    chronicle: StartChronicle, tmp_path: Path, function: str
) -> None:
    (tmp_path / "message.json").write_bytes(samples.body("action-plain.json"))
    publish = chronicle("publish", "--url", "local:q.db", "--queue", "q", "message.json")
    assert publish.wait() == 0, str(publish)
    found = imported(chronicle, tmp_path, "local:q.db", "q", function)
    assert "sqlite3" in found
    assert needless(found, UNNEEDED | ON_FILE) == set()
    assert {"asyncio", "ssl"} & found == ({"asyncio", "ssl"} if function == "look_async" else set())


@pytest.mark.parametrize("chosen", ["", "900", "0"])
def test_garbage_is_looked_for_as_usual_while_syncers_run_but_not_among_what_was_imported(
    chronicle: StartChronicle, tmp_path: Path, chosen: str
) -> None:
    """Unless the syncer's module decides how often that is."""
    (tmp_path / "sync.py").write_text(SYNCER)
    (tmp_path / "message.json").write_bytes(samples.body("action-plain.json"))
    env = {"THRESHOLD": chosen} if chosen else {}
    run = chronicle("replay", "--syncer", "sync.py:look_at_collector", "message.json", env=env)
    assert run.wait() == 0, str(run)
    thresholds = (chosen, "8", "7") if chosen else map(str, gc.get_threshold())
    assert (tmp_path / "collector").read_text().split() == ["True", "True", *thresholds, "True"]
