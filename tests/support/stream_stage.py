"""A Redis stream, `chronicle` over it with a rehearsed syncer, and what is left afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from support import rehearsed
from support.fixtures import StartChronicle
from support.process import ChronicleProcess
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer
from support.streams import Entry, Streams

PATIENCE: Final = 60.0
SYNCERS: Final = str(Path(rehearsed.__file__))


class StreamStage:
    """One stream of one test; `dead` is the stream that keeps its dead letters."""

    def __init__(
        self, server: RedisServer | Sentinels | Cluster, chronicle: StartChronicle, folder: Path
    ) -> None:
        self.url = server.url
        self.streams: Streams = server.streams
        self.stream = self.streams.make(self.streams.name("stage"))
        self.dead = f"{self.stream}.dlq"
        self._chronicle = chronicle
        self._calls = folder / "calls.jsonl"

    def publish(self, *messages: Mapping[str, Any], fields: Mapping[str, bytes] | None = None) -> list[str]:
        """Add messages as JSON, with these fields beside them; their ids."""
        return self.streams.publish(
            self.stream, *(json.dumps(message).encode() for message in messages), fields=fields
        )

    def start(
        self, syncer: str, *options: str, url: str = "", env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Start `chronicle consume` with one of the rehearsed syncers, for any JSON."""
        known = ("consume", "--queue", self.stream, "--schema", "json", "--syncer", f"{SYNCERS}:{syncer}")
        always = {"CHRONICLE_URL": url or self.url, "REHEARSED": str(self._calls)}
        return self._chronicle(*known, *options, env=always | dict(env or {}))

    def consume(
        self, syncer: str, *options: str, url: str = "", env: Mapping[str, str] | None = None
    ) -> ChronicleProcess:
        """Run it until the stream is empty or it ends by itself."""
        process = self.start(syncer, "--until-empty", *options, url=url, env=env)
        process.wait(PATIENCE)
        return process

    def command(self, *arguments: str, stdin: bytes | None = None, url: str = "") -> ChronicleProcess:
        """Run another command on this stream to its end."""
        process = self._chronicle(
            *arguments, "--queue", self.stream, env={"CHRONICLE_URL": url or self.url}, stdin=stdin
        )
        process.wait(PATIENCE)
        return process

    def calls(self) -> list[dict[str, Any]]:
        """What the syncer was called with, so far."""
        if not self._calls.exists():
            return []
        lines = self._calls.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def tries(self) -> list[tuple[bool, int]]:
        """Whether each call was a redelivery, and its number."""
        return [(call["redelivered"], call["attempts"]) for call in self.calls()]

    def dead_letters(self) -> list[Entry]:
        return self.streams.entries(self.dead)
