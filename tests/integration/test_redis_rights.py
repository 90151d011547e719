"""What a Redis user lacks is named: the key, the command, or the password."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fixtures import StartChronicle, StartRedis
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.stream_stage import PATIENCE, StreamStage

SECRET = "of-one-user"


@pytest.fixture(scope="module")
def guarded(private_redis: StartRedis) -> RedisServer:
    return private_redis(password="the root's", users={"least": f'on ">{SECRET}" ~chronicle.test.* +@all'})


@pytest.fixture
def guarded_stage(guarded: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(guarded, chronicle, tmp_path)


def assert_refused(process: ChronicleProcess, says: str) -> None:
    assert process.wait(PATIENCE) == 2
    assert says in process.stderr
    assert '"remedy":' in process.stderr  # every line is JSON
    assert SECRET not in process.stderr


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (("~*.dlq", "+@all"), "this user may not use the key '{queue}'"),
        (("~{queue}", "+@all"), "this user may not use the key '{queue}.dlq'"),
        (("~{queue}", "~{queue}.dlq", "+@all"), "this user may not use the key '{queue}.retry'"),
        (("~*", "+@all", "-xgroup"), "this user may not run XGROUP"),
    ],
)
def test_the_permission_that_is_missing_is_named(
    guarded: RedisServer, guarded_stage: StreamStage, rules: tuple[str, ...], says: str
) -> None:
    """Which key or command, so that nobody has to ask ACL LOG."""
    queue = guarded_stage.stream
    with guarded.client() as client:
        given = [rule.format(queue=queue) for rule in rules]
        client.execute_command("ACL", "SETUSER", "partly", "reset", "on", f">{SECRET}", *given)
    process = guarded_stage.start("yes", url=guarded.url_as("partly", SECRET))
    assert_refused(process, says.format(queue=queue))


def test_a_publisher_without_permission_ends_with_two(
    guarded: RedisServer, guarded_stage: StreamStage
) -> None:
    """X6: a missing right is for the operator to mend, wherever it shows."""
    with guarded.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "reset", "on", f">{SECRET}", "~*", "+@all", "-xadd"
        )
    process = guarded_stage.command("publish", "-", url=guarded.url_as("reader", SECRET), stdin=b"{}\n")
    assert process.returncode == 2
    assert "this user may not run XADD" in process.stderr
    assert "0 messages" in process.stderr
    assert "the rest was refused" in process.stderr


def test_a_login_without_a_password_says_so(guarded: RedisServer, guarded_stage: StreamStage) -> None:
    """Not that a password was wrong, when none was given."""
    assert_refused(
        guarded_stage.start("yes", url=f"redis://least@{guarded.address}/0"), "no password was given"
    )
