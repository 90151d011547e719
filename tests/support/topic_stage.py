"""A Kafka topic with its dead letters, `chronicle` over it, and what is left afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from support import rehearsed
from support.checker import AtKafka, Campaign
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.topics import Record, Topics

PATIENCE: Final = 60.0
SYNCERS: Final = str(Path(rehearsed.__file__))


class Cluster(Protocol):
    """Whatever has topics: a server, three of them, the mock."""

    @property
    def url(self) -> str: ...

    @property
    def topics(self) -> Topics: ...


def campaign_at(cluster: Cluster, folder: Path, word: str = "fault", *, partitions: int = 3) -> Campaign:
    """A campaign on a fresh topic, with its dead-letter topic."""
    topic = cluster.topics.make(cluster.topics.name(word), partitions)
    dead = cluster.topics.make(f"{topic}.dlq", partitions)
    return Campaign(AtKafka(cluster.topics, cluster.url), topic, folder, dead)


class TopicStage:
    """One topic of one test; `dead` is the topic that keeps its dead letters."""

    def __init__(
        self, cluster: Cluster, chronicle: StartChronicle, folder: Path, *, partitions: int = 1
    ) -> None:
        self.url = cluster.url
        self.topics = cluster.topics
        self.topic = self.topics.make(self.topics.name("stage"), partitions)
        self.dead = self.topics.make(f"{self.topic}.dlq", partitions)
        self.group = f"chronicle.{self.topic}"
        self._chronicle = chronicle
        self._calls = folder / "calls.jsonl"

    def publish(self, *messages: Mapping[str, Any], keys: Sequence[bytes | None] = ()) -> None:
        """Append messages as JSON."""
        self.topics.publish(self.topic, *(json.dumps(message).encode() for message in messages), keys=keys)

    def start(
        self, syncer: str, *options: str, url: str = "", env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Start `chronicle consume` with one of the rehearsed syncers, for any JSON."""
        known = ("consume", "--queue", self.topic, "--schema", "json", "--syncer", f"{SYNCERS}:{syncer}")
        always = {"CHRONICLE_URL": url or self.url, "REHEARSED": str(self._calls)}
        return self._chronicle(*known, *options, env=always | dict(env or {}))

    def consume(
        self, syncer: str, *options: str, url: str = "", env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Run it until the topic is empty or it ends by itself."""
        process = self.start(syncer, "--until-empty", *options, url=url, env=env)
        process.wait(PATIENCE)
        return process

    def calls(self) -> list[dict[str, Any]]:
        """What the syncer was called with, so far."""
        if not self._calls.exists():
            return []
        lines = self._calls.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def dead_letters(self) -> list[Record]:
        return self.topics.records(self.dead)

    def committed(self, partition: int = 0) -> int | None:
        """The offset that is committed for the group of this topic."""
        found = self.topics.committed(self.group, self.topic).get(partition)
        return found[0] if found else None
