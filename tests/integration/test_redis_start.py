"""Starting at Redis: what is refused with one line and a remedy (D-9, H2), what is waited for, who may in."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from support.fixtures import StartChronicle, StartRedis
from support.ports import free_ports
from support.process import ChronicleProcess
from support.redis_cluster import Cluster
from support.redis_sentinels import Sentinels
from support.redis_server import RedisServer
from support.stream_stage import PATIENCE, StreamStage
from support.waiting import wait_for

SECRET: Final = "c4nary/p@ss wörd"
ENCODED: Final = "c4nary%2Fp%40ss%20w%C3%B6rd"
LEVELS: Final = ("debug", "error")
REFUSED: Final = 15.0  # seconds, on a busy machine; an operator waits for ten at most
SLACK: Final = 2.5  # beyond a limit: the start and the end of a process on a busy machine
PAGE: Final = Path(__file__).parents[2] / "docs" / "redis.md"


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(redis_server, chronicle, tmp_path)


@pytest.fixture(scope="module")
def guarded(private_redis: StartRedis) -> RedisServer:
    """A server with a password, and two users with few rights."""
    return private_redis(
        password="the root's",
        users={
            "least": f'on ">{SECRET}" ~chronicle.test.* +@all',
            "nothing": f'on ">{SECRET}" ~chronicle.test.* resetchannels -@all +auth +hello +select',
            "elsewhere": f'on ">{SECRET}" ~another.* resetchannels +@all',
        },
    )


@pytest.fixture
def guarded_stage(guarded: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(guarded, chronicle, tmp_path)


def assert_refused(process: ChronicleProcess, *words: str) -> None:
    """Exit 2, one line that says what is wrong, one that says what to do, and no secret (H2, Z4)."""
    assert process.wait(REFUSED) == 2, process.stderr
    lines = process.words.splitlines()
    warning = "chronicle: warning: "
    (at,) = [n for n, line in enumerate(lines) if line.startswith("chronicle: ") and warning not in line]
    assert all(word in lines[at] for word in words), lines[at]
    assert lines[at + 1].startswith("  remedy: ")
    assert "Traceback" not in process.stderr
    assert_no_secret(process)


def assert_no_secret(process: ChronicleProcess) -> None:
    said = process.stdout + process.stderr
    for form in (SECRET, ENCODED, "c4nary"):
        assert form not in said


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("user", ["default", "least", "nobody"])
def test_a_wrong_password_is_refused(
    guarded: RedisServer, guarded_stage: StreamStage, level: str, user: str
) -> None:
    """H2, D-9, Z4: and it is nowhere in the output, at any level."""
    url = f"redis://{user}:{ENCODED}x@{guarded.address}/0"
    assert_refused(guarded_stage.start("yes", "--log-level", level, url=url), "password", "127.0.0.1")


def test_a_missing_password_is_refused(guarded: RedisServer, guarded_stage: StreamStage) -> None:
    """H2, D-9."""
    assert_refused(guarded_stage.start("yes", url=f"redis://{guarded.address}/0"), "password")


def test_a_password_that_is_not_wanted_is_explained(stage: StreamStage) -> None:
    """D-9: a server without passwords accepts any for its default user, but knows no other user."""
    url = stage.url.replace("redis://", f"redis://somebody:{ENCODED}@")
    assert_refused(stage.start("yes", url=url), "password")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("user", ["nothing", "elsewhere"])
def test_a_user_without_permission_is_refused(
    guarded: RedisServer, guarded_stage: StreamStage, level: str, user: str
) -> None:
    """H2, D-9, Z14."""
    process = guarded_stage.start("yes", "--log-level", level, url=guarded.url_as(user, SECRET))
    assert_refused(process, "may not", "127.0.0.1")


def as_documented(guarded: RedisServer, stage: StreamStage, user: str) -> str:
    """Make a user with the rights that the page gives it, for this stream; its URL."""
    text = PAGE.read_text().replace("\\\n", " ")
    (found,) = re.findall(rf"^redis-cli ACL SETUSER {user} on '>PASSWORD' (.*)$", text, re.MULTILINE)
    rules = [rule.replace("orders", stage.stream) for rule in shlex.split(found)]
    name = f"{user}.{stage.stream}"
    with guarded.client() as client:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{SECRET}", *rules)
        client.execute_command("ACL", "LOG", "RESET")
    return guarded.url_as(name, SECRET)


def test_the_documented_rights_are_enough_to_consume(
    guarded: RedisServer, guarded_stage: StreamStage
) -> None:
    """Z14: for every verdict, a delayed retry, dead letters and the entry of a dead consumer among them."""
    stage, url = guarded_stage, as_documented(guarded, guarded_stage, "crm")
    stage.publish({"ok": True}, {"ok": False})
    options = ("--on-failure", "retry:2", "--retry-delay", "100ms", "--claim-idle", "2s")
    process = stage.consume("as_told", *options, url=url)
    assert process.returncode == 0, process.stderr
    assert not process.lines("connection.lost")
    assert stage.tries() == [(False, 1), (False, 1), (True, 2)]
    assert len(stage.dead_letters()) == 1
    stage.publish({"ok": True})
    stage.streams.read(stage.stream, "dead", 1)
    taken = stage.start("as_told", *options, url=url)
    wait_for(lambda: len(stage.calls()) == 4, PATIENCE, "an entry of a dead consumer")
    taken.signal(signal.SIGTERM)
    assert taken.wait() == 0
    assert not taken.lines("connection.lost")
    for one in (process, taken):
        assert_no_secret(one)
    assert_nothing_was_denied(guarded)


def test_the_documented_rights_are_enough_for_dead_letters(
    guarded: RedisServer, guarded_stage: StreamStage, tmp_path: Path
) -> None:
    """Z14: to list, redrive and drop them, and to capture."""
    stage, url = guarded_stage, as_documented(guarded, guarded_stage, "desk")
    stage.publish({"n": 1}, {"n": 2})
    assert stage.consume("no", "--on-failure", "dead-letter").returncode == 0
    for command in (
        ("dlq", "list"),
        ("dlq", "redrive", "--limit", "1"),
        ("dlq", "drop", "--yes", "--no-export"),
        ("capture", str(tmp_path / "captured.jsonl")),
    ):
        process = stage.command(*command, url=url)
        assert process.returncode == 0, (command, process.stderr)
    assert stage.dead_letters() == []
    assert_nothing_was_denied(guarded)


def test_the_documented_rights_are_enough_to_publish(
    guarded: RedisServer, guarded_stage: StreamStage
) -> None:
    """Z14."""
    stage, url = guarded_stage, as_documented(guarded, guarded_stage, "shop")
    process = stage.command("publish", "-", url=url, stdin=b'{"n": 1}\n')
    assert process.returncode == 0, process.stderr
    assert len(stage.streams.bodies(stage.stream)) == 1
    assert_nothing_was_denied(guarded)


def assert_nothing_was_denied(guarded: RedisServer) -> None:
    """The server notes what a user tried and may not."""
    with guarded.client() as client:
        assert client.execute_command("ACL", "LOG") == []


def test_the_password_can_come_from_a_variable(guarded: RedisServer, guarded_stage: StreamStage) -> None:
    """Z3."""
    guarded_stage.publish({"ok": True})
    process = guarded_stage.consume(
        "yes", url=f"redis://least@{guarded.address}/0", env={"CHRONICLE_PASSWORD": SECRET}
    )
    assert process.returncode == 0, process.stderr
    assert_no_secret(process)


def test_an_unknown_stream_is_refused_and_not_made(stage: StreamStage) -> None:
    """D-9, D-15, S1: MKSTREAM would make a stream out of a typing error."""
    stage.stream = stage.streams.name("missing")
    assert_refused(stage.start("yes"), "no stream", stage.stream)
    assert not stage.streams.exists(stage.stream)


def test_a_key_of_another_type_is_refused(stage: StreamStage, redis_server: RedisServer) -> None:
    """S-e: for the stream itself and for its dead letters."""
    with redis_server.client() as client:
        client.set(stage.dead, "not a stream")
    assert_refused(stage.start("yes"), stage.dead)
    stage.streams.delete(stage.dead, stage.stream)
    with redis_server.client() as client:
        client.set(stage.stream, "not a stream")
    assert_refused(stage.start("yes"), stage.stream)


def test_a_database_that_is_not_there_is_refused(stage: StreamStage) -> None:
    """D-9."""
    assert_refused(stage.start("yes", url=f"{stage.url[:-1]}99"), "database")


def test_a_service_that_no_sentinel_knows_is_refused(
    redis_sentinels: Sentinels, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-9."""
    stage = StreamStage(redis_sentinels, chronicle, tmp_path)
    url = stage.url.replace("/chronicle-test/", "/nobody/")
    assert_refused(stage.start("yes", url=url), "service", "nobody")


def test_a_server_that_is_no_sentinel_is_refused(stage: StreamStage, redis_server: RedisServer) -> None:
    """D-9."""
    process = stage.start("yes", url=f"redis+sentinel://{redis_server.address}/service/0")
    assert_refused(process, "no sentinel")


def test_a_server_outside_of_a_cluster_is_refused(stage: StreamStage, redis_server: RedisServer) -> None:
    """D-9."""
    process = stage.start("yes", "--queue", "{x}", url=f"redis+cluster://{redis_server.address}")
    assert_refused(process, "cluster")


def test_a_node_of_a_cluster_is_no_single_server(
    redis_cluster: Cluster, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-9: the wrong node would say MOVED for ever."""
    stage = StreamStage(redis_cluster, chronicle, tmp_path)
    owner = redis_cluster.node_of(stage.stream)
    other = next(node for node in redis_cluster.nodes if node is not owner)
    assert_refused(stage.start("yes", "--startup-timeout", "3s", url=other.url), "node of a cluster")


# --- TLS ----------------------------------------------------------------------------------------------


def test_tls_with_our_own_authority_works(stage: StreamStage, redis_server: RedisServer) -> None:
    """Z9, R-001-2."""
    assert redis_server.certs is not None
    stage.publish({"n": 1})
    process = stage.consume("yes", "--tls-ca", str(redis_server.certs.ca), url=redis_server.tls_url)
    assert process.returncode == 0, process.stderr
    assert len(stage.calls()) == 1


def test_an_unknown_authority_is_refused(stage: StreamStage, redis_server: RedisServer) -> None:
    """Z9, H2."""
    assert_refused(stage.start("yes", url=redis_server.tls_url), "certificate")


def test_another_name_in_the_certificate_is_refused(
    private_redis: StartRedis, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """Z9, H2."""
    server = private_redis(wrong_host=True)
    assert server.certs is not None
    stage = StreamStage(server, chronicle, tmp_path)
    assert_refused(stage.start("yes", "--tls-ca", str(server.certs.ca), url=server.tls_url), "localhost")


def test_a_client_certificate_is_shown_when_asked_for(
    private_redis: StartRedis, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """Z9, R-001-42: with it the consumer runs, without it the server refuses."""
    server = private_redis(client_certs=True)
    assert server.certs is not None
    stage = StreamStage(server, chronicle, tmp_path)
    stage.publish({"n": 1})
    authority = ("--tls-ca", str(server.certs.ca))
    assert_refused(stage.start("yes", *authority, url=server.tls_url), "certificate")
    pair = ("--tls-cert", str(server.certs.client.cert), "--tls-key", str(server.certs.client.key))
    process = stage.consume("yes", *authority, *pair, url=server.tls_url)
    assert process.returncode == 0, process.stderr


def test_tls_to_a_plain_port_is_given_up(stage: StreamStage) -> None:
    """Z9: never quietly without; the server waits for the rest of what it takes for a command."""
    url = stage.url.replace("redis://", "rediss://")
    process = stage.start("yes", "--startup-timeout", "2s", url=url)
    assert process.wait(PATIENCE) in (2, 3)
    assert "Traceback" not in process.stderr


def test_a_plain_connection_to_the_tls_port_is_given_up(
    stage: StreamStage, redis_server: RedisServer
) -> None:
    """D-9."""
    port = urlsplit(redis_server.tls_url).port
    process = stage.start("yes", "--startup-timeout", "2s", url=f"redis://127.0.0.1:{port}/0")
    assert process.wait(PATIENCE) in (2, 3)
    assert "Traceback" not in process.stderr


# --- a server that is not there, or says nothing ------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_a_server_that_is_not_there_is_given_up(stage: StreamStage) -> None:
    """D-9, X6: exit code 3 when the time is over."""
    url = f"redis://:{ENCODED}@127.0.0.1:{free_ports(1)[0]}/0"
    process = stage.start("yes", "--startup-timeout", "1s", url=url)
    assert process.wait(PATIENCE) == 3
    assert "connection refused" in process.stderr
    assert_no_secret(process)


def test_a_server_that_comes_later_is_waited_for(
    private_redis: StartRedis, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """D-9."""
    server = private_redis(durable=True)
    stage = StreamStage(server, chronicle, tmp_path)
    stage.publish({"n": 1})
    server.stop()
    process = stage.start(
        "yes", "--startup-timeout", "60s", "--reconnect-max", "200ms", "--max-messages", "1"
    )
    process.wait_for_line("connection.retry")
    server.start()
    assert process.wait(PATIENCE) == 0


@pytest.mark.timed
@pytest.mark.parametrize("command", ["consume", "declare", "publish"])
def test_a_silent_peer_keeps_the_startup_timeout(stage: StreamStage, silent: str, command: str) -> None:
    """D-9, X6: exit code 3 when the time is over."""
    begun = time.monotonic()
    if command == "consume":
        process = stage.start("yes", "--startup-timeout", "2s", url=silent)
        process.wait(PATIENCE)
    else:
        file = ("-",) if command == "publish" else ()
        process = stage.command(command, *file, "--startup-timeout", "2s", url=silent, stdin=b"{}\n")
    assert process.returncode == 3, process.stderr
    assert time.monotonic() - begun < 2.0 + SLACK + 1.5
    assert "no answer in time" in process.stderr


@pytest.mark.timed
def test_a_silent_peer_keeps_nobody_who_wants_to_stop(stage: StreamStage, silent: str) -> None:
    """R-001-38: SIGTERM is obeyed in the middle of a login."""
    process = stage.start("yes", url=silent)
    process.wait_for_line("consumer.starting")
    time.sleep(1.0)
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - begun < SLACK
