"""`--on-failure retry:N` where no broker is: the embedded queue, and replay (D-2)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from support import rehearsed, samples
from support.fixtures import StartChronicle
from support.process import ChronicleProcess

SYNCERS = Path(rehearsed.__file__)
PATIENCE = 60.0


def run(chronicle: StartChronicle, folder: Path, *args: str) -> ChronicleProcess:
    env = {"REHEARSED": str(folder / "calls.jsonl"), "CHRONICLE_URL": f"local:{folder / 'queue.db'}"}
    process = chronicle(*args, env=env)
    process.wait(PATIENCE)
    return process


def calls(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def test_the_embedded_queue_counts_and_waits(chronicle: StartChronicle, tmp_path: Path) -> None:
    """R-003-23, R-003-24: three tries, never early, then the dead letters with their story."""
    message = tmp_path / "message.json"
    message.write_bytes(samples.body("action-plain.json"))
    assert run(chronicle, tmp_path, "publish", "--queue", "demo", str(message)).returncode == 0
    retry = ("--on-failure", "retry:3", "--retry-delay", "100ms,300ms", "--until-empty")
    consume = ("consume", "--queue", "demo", "--syncer")
    process = run(chronicle, tmp_path, *consume, f"{SYNCERS}:no", *retry)
    assert process.returncode == 0, process.stderr

    tries = calls(tmp_path)
    assert [call["attempts"] for call in tries] == [1, 2, 3]
    waits = [later["at"] - earlier["at"] for earlier, later in pairwise(tries)]
    # The file's clock counts whole milliseconds.
    assert all(wait >= delay - 0.002 for wait, delay in zip(waits, (0.1, 0.3), strict=True))
    assert len(process.lines("message.retried")) == 2

    dead = ("consume", "--queue", "demo.dlq", "--syncer", f"{SYNCERS}:yes", "--until-empty")
    assert run(chronicle, tmp_path, *dead).returncode == 0
    letter = calls(tmp_path)[-1]
    assert "'x-chronicle-attempts': 3" in letter["headers"]
    assert "'x-chronicle-reason': 'the syncer returned False'" in letter["headers"]


def test_replay_makes_all_tries_at_once(chronicle: StartChronicle, tmp_path: Path) -> None:
    """The delays of a broker are not waited for: an hour would be noticed."""
    message = tmp_path / "message.json"
    message.write_bytes(samples.body("action-plain.json"))
    retry = ("--on-failure", "retry:4", "--retry-delay", "1h")
    process = run(chronicle, tmp_path, "replay", "--syncer", f"{SYNCERS}:no", *retry, str(message))
    assert process.returncode == 1
    assert [call["attempts"] for call in calls(tmp_path)] == [1, 2, 3, 4]
