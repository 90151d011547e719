"""Dead letters at Redis, moved and removed by a process that is killed, or whose connection breaks.

Redis moves an entry in one step, so nothing is ever in both streams or in none.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from support.fixtures import StartChronicle
from support.proxy import Mode, Proxy
from support.redis_server import RedisServer
from support.stream_stage import PATIENCE, StreamStage
from support.waiting import wait_for

LETTERS: Final = 400
ALL: Final = Counter(range(LETTERS))


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    """So slow that a kill finds the work half done."""
    with Proxy(redis_server.url, delay=0.004) as proxy:
        proxy.set(Mode.DELAY)
        yield proxy


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    """A stream whose dead letters are full."""
    stage = StreamStage(redis_server, chronicle, tmp_path)
    stage.publish(*({"n": number} for number in range(LETTERS)))
    process = stage.consume("no", "--on-failure", "dead-letter", "--brake", "0", "--concurrency", "20")
    assert process.returncode == 0, process.stderr
    assert dead(stage) == ALL
    return stage


def numbers(bodies: list[bytes]) -> Counter[int]:
    return Counter(int(json.loads(body)["n"]) for body in bodies)


def dead(stage: StreamStage) -> Counter[int]:
    return numbers([entry.body for entry in stage.dead_letters()])


def redriven(stage: StreamStage) -> Counter[int]:
    """What is on the stream again; the entries that were there before are still there, too."""
    again = [one.body for one in stage.streams.entries(stage.stream) if "x-chronicle-redrives" in one.fields]
    return numbers(again)


def test_a_redrive_killed_again_and_again_moves_each_once(
    stage: StreamStage, proxy: Proxy, chronicle: StartChronicle, luck: Random
) -> None:
    """S6, F1: after every kill each letter is in one of the two streams; at the end all are handled."""
    for _ in range(5):
        before = dead(stage).total()
        process = chronicle(
            "dlq", "redrive", "--queue", stage.stream,
            env={"CHRONICLE_URL": proxy.url_for(stage.url)},
        )  # fmt: skip
        aim = before - luck.randrange(1, 60)
        wait_for(lambda: dead(stage).total() <= aim or not process.running, PATIENCE, "a beginning", every=0)  # noqa: B023
        process.kill()
        assert dead(stage) + redriven(stage) == ALL
    done = stage.command("dlq", "redrive")
    assert done.returncode == 0, done.stderr
    assert (dead(stage), redriven(stage)) == (Counter(), ALL)
    calls = len(stage.calls())
    assert stage.consume("yes", "--concurrency", "20").returncode == 0
    assert Counter(call["message"]["n"] for call in stage.calls()[calls:]) == ALL


def test_lost_replies_to_moves_double_nothing(stage: StreamStage, proxy: Proxy) -> None:
    """S6: whoever was not told does not do it twice."""
    for _ in range(5):
        proxy.lose_replies(b"x-chronicle-redrives")
        stage.command("dlq", "redrive", url=proxy.url_for(stage.url))
        assert dead(stage) + redriven(stage) == ALL
    assert proxy.lost > 0
    assert stage.command("dlq", "redrive").returncode == 0
    assert (dead(stage), redriven(stage)) == (Counter(), ALL)


def test_an_interrupted_redrive_says_how_far_it_got(
    stage: StreamStage, proxy: Proxy, chronicle: StartChronicle
) -> None:
    """R-001-38."""
    process = chronicle(
        "dlq", "redrive", "--queue", stage.stream, env={"CHRONICLE_URL": proxy.url_for(stage.url)}
    )
    wait_for(lambda: dead(stage).total() < LETTERS, PATIENCE, "a beginning", every=0)
    process.signal(signal.SIGINT)
    assert process.wait(PATIENCE) in (0, 4)
    assert dead(stage) + redriven(stage) == ALL


def test_what_a_killed_drop_removed_is_in_its_export(
    stage: StreamStage, proxy: Proxy, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """F1: written first, removed then."""
    export = tmp_path / "dropped.jsonl"
    process = chronicle(
        "dlq", "drop", "--queue", stage.stream, "--yes", "--export", str(export),
        env={"CHRONICLE_URL": proxy.url_for(stage.url)},
    )  # fmt: skip
    wait_for(lambda: dead(stage).total() < LETTERS, PATIENCE, "a beginning", every=0)
    process.kill()
    left = dead(stage)
    assert 0 < left.total() < LETTERS
    lines = [json.loads(line) for line in export.read_text().splitlines(keepends=True) if line.endswith("\n")]
    assert set(ALL - left) <= {line["payload"]["json"]["n"] for line in lines}
