"""A RabbitMQ queue with dead letters, `chronicle consume` over it, and what is left afterwards.

They are kept by the broker, in a queue that chronicle does not know of; or moved by chronicle to `QUEUE.dlq`,
and then the broker alone would delete them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pika

from chronicle.core.queues import dead_letter_queue
from support import rehearsed
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.queues import Fetched, Queues
from support.waiting import wait_for

PATIENCE: Final = 60.0
SYNCERS: Final = str(Path(rehearsed.__file__))


class Stage:
    """One queue of one test; `dead` is the queue that keeps its dead letters."""

    def __init__(
        self,
        broker: Broker,
        chronicle: StartChronicle,
        folder: Path,
        *,
        quorum: bool = False,
        moved: bool = False,
    ) -> None:
        self.moved = moved
        self.url = broker.url
        self.queues: Queues = broker.queues
        self.queue = self.queues.name("quorum" if quorum else "classic")
        if moved:
            self.queues.declare(self.queue, quorum=quorum)
            self.dead = self.queues.declare(dead_letter_queue(self.queue))
        else:
            self.dead = self.queues.declare_with_dead_letters(self.queue, quorum=quorum)
        self._chronicle = chronicle
        self._calls = folder / "calls.jsonl"

    def publish(self, *bodies: bytes, properties: pika.BasicProperties | None = None) -> None:
        self.queues.publish(self.queue, *bodies, properties=properties)

    def start(
        self, syncer: str, *options: str, queue: str | None = None, env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Start `chronicle consume` with one of the rehearsed syncers."""
        arguments = ("consume", "--queue", queue or self.queue, "--syncer", f"{SYNCERS}:{syncer}", *options)
        always = {"CHRONICLE_URL": self.url, "REHEARSED": str(self._calls)}
        return self._chronicle(*arguments, env=always | dict(env or {}))

    def consume(
        self, syncer: str, *options: str, queue: str | None = None, env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Run it until the queue is empty or it ends by itself."""
        process = self.start(syncer, "--until-empty", *options, queue=queue, env=env)
        process.wait(PATIENCE)
        return process

    def calls(self) -> list[dict[str, Any]]:
        """What the syncer was called with, so far."""
        if not self._calls.exists():
            return []
        lines = self._calls.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def left(self, count: int) -> list[Fetched]:
        """Everything in the queue, taken off it; at least so many, for which it waits."""
        return self._take(self.queue, count)

    def dead_letters(self, count: int) -> list[Fetched]:
        """All dead letters, taken off their queue; at least so many, for which it waits."""
        return self._take(self.dead, count)

    def _take(self, queue: str, count: int) -> list[Fetched]:
        taken: list[Fetched] = []

        def enough() -> bool:
            taken.extend(self.queues.get_all(queue))
            return len(taken) >= count

        wait_for(enough, PATIENCE, f"{count} messages in {queue}", every=0.05)
        return taken


def stopped(process: ChronicleProcess) -> dict[str, Any]:
    """The line with the final counters (R-004-37); there is exactly one."""
    lines = process.lines("consumer.stopped")
    assert len(lines) == 1, f"{process} ended with {process.returncode}; it said:\n{process.stderr}"
    return lines[0]


def counted(process: ChronicleProcess) -> dict[str, int]:
    """The final counters that are not zero, without those that tell of the way and not of the end."""
    names = ("received", "ack", "nack", "requeued", "retried", "dead_lettered", "rejected", "dropped",
             "ack_retry", "stale")  # fmt: skip
    line = stopped(process)
    return {name: line[name] for name in names if line[name]}
