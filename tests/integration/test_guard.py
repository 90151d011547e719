"""A test that crashes, or is killed, leaves no broker behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support.fixtures import skip_without_kafka
from support.proc import has_ended
from support.waiting import wait_for

START = {
    "RabbitMQ": "from support.rabbit import RabbitNode; server = RabbitNode().start()",
    "Redis": "from support.redis_server import RedisServer; server = RedisServer().start()",
    "Kafka": "from support.kafka_server import KafkaServer; server = KafkaServer(); server.launch()",
}
AND_WAIT = """
import time
epmd = getattr(server, "_epmd", None)
print(server.folder, server.pid, epmd.pid if epmd else "", sep="\\n", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("broker", START)
def test_a_server_does_not_outlive_whoever_started_it(broker: str) -> None:
    if broker == "Kafka":
        skip_without_kafka()
    command = [sys.executable, "-c", START[broker] + AND_WAIT]
    there = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=there, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        folder, *pids = (starter.stdout.readline().strip() for _ in range(3))
        starter.kill()
    try:
        for pid in filter(None, pids):
            wait_for(partial(has_ended, int(pid)), 60, f"the end of {pid}")
    finally:
        shutil.rmtree(folder)
