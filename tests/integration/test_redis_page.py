"""The permissions that docs/redis.md lists are enough: its lines are run as they are printed (Z14)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from support.cli import Said, run
from support.fixtures import StartRedis
from support.redis_server import RedisServer

PAGE: Final = Path(__file__).parents[2] / "docs" / "redis.md"
PASSWORD: Final = "c4nary-of-the-page"
SYNCERS: Final = "def yes(message):\n    return True\n\n\ndef no(message):\n    return False\n"
BOUNDED: Final = ("--schema", "json", "--until-empty", "--max-time", "20s")

As: TypeAlias = Callable[..., Said]


@pytest.fixture(scope="module")
def server(private_redis: StartRedis) -> RedisServer:
    """A server with the users of the page."""
    server = private_redis()
    printed = re.findall(r"```sh\nredis-cli (ACL SETUSER .*?)```", PAGE.read_text(), re.DOTALL)
    with server.client() as client:
        for line in printed:
            whole = line.replace("\\\n", " ").replace("PASSWORD", PASSWORD)
            client.execute_command(*shlex.split(whole))
    return server


@pytest.fixture
def as_user(server: RedisServer, tmp_path: Path) -> Iterator[As]:
    """Run a command as one of them; in the end, the server has refused nobody anything."""
    (tmp_path / "sync.py").write_text(SYNCERS)
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in range(3)))

    def as_user(user: str, *args: str) -> Said:
        env = {"CHRONICLE_URL": f"redis://{user}@{server.address}/0", "CHRONICLE_PASSWORD": PASSWORD}
        return run(*args, cwd=tmp_path, env=env)

    with server.client() as client:
        client.execute_command("ACL", "LOG", "RESET")
        yield as_user
        refused: list[Any] = client.execute_command("ACL", "LOG")
    assert refused == []


def test_what_the_page_lists_is_enough(as_user: As, server: RedisServer) -> None:
    """Consume with every verdict, declare, publish, and all of dlq and capture."""
    consume = ("consume", "--queue", "orders", *BOUNDED)
    steps = [
        ("crm", "declare", "--queue", "orders"),
        ("shop", "publish", "--queue", "orders", "--maxlen", "1000", "orders.jsonl"),
        ("crm", *consume, "--syncer", "sync.py:no"),
        ("shop", "publish", "--queue", "orders", "orders.jsonl"),
        ("crm", *consume, "--syncer", "sync.py:no", "--on-failure", "retry:2", "--retry-delay", "100ms"),
        ("desk", "dlq", "list", "--queue", "orders"),
        ("desk", "dlq", "show", "--queue", "orders"),
        ("desk", "dlq", "export", "--queue", "orders", "dead.jsonl"),
        ("desk", "dlq", "redrive", "--queue", "orders", "--limit", "2"),
        ("desk", "capture", "--queue", "orders", "waiting.jsonl"),
        (
            "desk",
            "dlq",
            "redrive",
            "--queue",
            "orders",
            "--verify",
            "sync.py:yes",
            "--yes",
            "--schema",
            "json",
        ),
        ("crm", *consume, "--syncer", "sync.py:no", "--on-failure", "dead-letter"),
        ("desk", "dlq", "drop", "--queue", "orders", "--limit", "1", "--yes"),
    ]
    for user, *args in steps:
        said = as_user(user, *args)
        assert said.code == 0, (args, said.err)
    with server.client() as client:
        assert client.xlen("orders.dlq") == 1
        client.xgroup_create("orders.dlq", "chronicle", "0")  # as if somebody consumed the dead letters
    assert as_user("desk", "dlq", "drop", "--queue", "orders", "--yes").code == 0
    with server.client() as client:
        assert client.xlen("orders.dlq") == 0


def test_what_a_dead_consumer_left_can_be_taken_over(as_user: As, server: RedisServer) -> None:
    assert as_user("crm", "declare", "--queue", "orders").code == 0
    with server.client() as client:
        client.xadd("orders", {"data": "{}"})
        client.xreadgroup("chronicle", "dead", {"orders": ">"})
    said = as_user(
        "crm", "consume", "--queue", "orders", *BOUNDED, "--syncer", "sync.py:yes", "--claim-idle", "2s"
    )
    assert said.code == 0, said.err
    assert '"redis.claimed":1' in said.err
