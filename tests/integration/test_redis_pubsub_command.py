"""`chronicle consume --mode pubsub`: what it says, and what it refuses."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from chronicle.telemetry import events
from support import rehearsed
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer

PATIENCE: Final = 30.0
SYNCERS: Final = str(Path(rehearsed.__file__))


class TestCommand:
    def command(
        self, chronicle: StartChronicle, redis_server: RedisServer, *options: str
    ) -> ChronicleProcess:
        arguments = ("--url", redis_server.url, "--mode", "pubsub", "--queue", "orders", *options)
        env = {"REHEARSED": "calls.jsonl"}
        return chronicle("consume", "--syncer", f"{SYNCERS}:yes", "--schema", "raw", *arguments, env=env)

    def test_the_first_line_says_at_most_once_and_a_signal_finishes_what_came(
        self, redis_server: RedisServer, chronicle: StartChronicle
    ) -> None:
        process = self.command(chronicle, redis_server, "--log-format", "json")
        process.wait_for_line(events.READY)
        assert "at most once" in process.stderr.splitlines()[0]
        with redis_server.client() as client:
            for number in range(50):
                client.publish("orders", b"%d" % number)
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, process.stderr
        (stopped,) = process.lines(events.STOPPED)
        assert (stopped["received"], stopped["ack"]) == (50, 50)
        ready = process.lines(events.READY)[0]
        assert (ready["mode"], ready["channel"]) == ("pubsub", "orders")

    @pytest.mark.parametrize(
        "options",
        [
            ("--on-failure", "requeue"),
            ("--on-failure", "dead-letter"),
            ("--on-failure", "retry:3"),
            ("--on-invalid", "dead-letter"),
            ("--until-empty",),
            ("--group", "g"),
            ("--no-group",),
            ("--claim-idle", "5s"),
        ],
        ids=" ".join,
    )
    def test_what_means_nothing_here_is_refused(
        self, redis_server: RedisServer, chronicle: StartChronicle, options: tuple[str, ...]
    ) -> None:
        process = self.command(chronicle, redis_server, *options)
        assert process.wait(PATIENCE) == 2, process.stderr
        assert options[0] in process.stderr
        assert "remedy" in process.stderr

    @pytest.mark.parametrize(
        "command",
        [("capture", "--output", "x.jsonl"), ("dlq", "list"), ("declare",)],
        ids=lambda command: command[0],
    )
    def test_commands_that_need_a_queue_are_refused(
        self, redis_server: RedisServer, chronicle: StartChronicle, command: tuple[str, ...]
    ) -> None:
        process = chronicle(*command, "--url", redis_server.url, "--mode", "pubsub", "--queue", "orders")
        assert process.wait(PATIENCE) == 2, process.stderr
        assert "remedy" in process.stderr
        assert "Traceback" not in process.stderr
