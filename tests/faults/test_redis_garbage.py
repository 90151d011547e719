"""G1–G5 at Redis: whatever an entry contains, it ends in the syncer or among the dead letters, as it came.

And a server that does not speak Redis' protocol, and a publisher that is not told how it went.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from support.fixtures import StartChronicle
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stream_stage import StreamStage

MIB: Final = 1024 * 1024
BODIES: Final[Mapping[str, bytes]] = {
    "G1 16 MiB": b'{"n": "' + b"x" * (16 * MIB) + b'"}',
    "G2 empty": b"",
    "G3 invalid UTF-8": b'{"n": "\xff\xfe"}',
    "G4 deep arrays": b"[" * 100_000,
    "G4 deep objects": b'{"a":' * 100_000,
    "G5 a long number": b'{"n": ' + b"9" * 5000 + b"}",
    "G5 NaN": b'{"n": NaN}',
    "nul bytes": b"\0" * 100,
}


@pytest.fixture
def stage(redis_server: RedisServer, chronicle: StartChronicle, tmp_path: Path) -> StreamStage:
    return StreamStage(redis_server, chronicle, tmp_path)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_hostile_body_ends_among_the_dead_letters_as_it_came(stage: StreamStage, body: bytes) -> None:
    """G1–G5, X1, X2, Z6, Z12: and the next one is handled."""
    stage.streams.publish(stage.stream, body, fields={"beside": b"\xff\0"})
    stage.publish({"n": 1})
    process = stage.consume("yes", "--on-invalid", "dead-letter")
    assert process.returncode == 0, process.stderr[-2000:]
    assert [call["message"] for call in stage.calls()] == [{"n": 1}]
    (letter,) = stage.dead_letters()
    assert (letter.body, letter.fields["beside"]) == (body, b"\xff\0")
    assert not process.lines("connection.lost")


ENTRIES: Final[Mapping[str, Mapping[bytes, bytes]]] = {
    "no body": {b"something": b"else"},
    "an empty name": {b"": b"1"},
    "control characters": {b"\r\n\x1b[31m": b"\r\n\x1b[31m"},
    "forged facts": {
        b"data": b"not JSON", b"x-chronicle-attempts": b"9" * 400, b"x-chronicle-group": b"\xff",
        b"x-chronicle-redrives": b"-1", b"x-chronicle-first-failed-at": b"never",
    },
}  # fmt: skip


@pytest.mark.parametrize("fields", ENTRIES.values(), ids=ENTRIES)
def test_a_hostile_entry_harms_nobody(
    stage: StreamStage, redis_server: RedisServer, fields: Mapping[bytes, bytes]
) -> None:
    """Z10, Z16, X1: it is kept, told or passed over; the next one is handled."""
    with redis_server.client() as client:
        client.xadd(stage.stream, dict(fields))
    stage.publish({"n": 1})
    process = stage.consume("yes")
    assert process.returncode == 0, process.stderr[-2000:]
    assert [call["message"] for call in stage.calls()] == [{"n": 1}]
    assert stage.streams.pending(stage.stream) == []
    assert "\x1b" not in process.stderr
    assert "Traceback" not in process.stderr
    assert not process.lines("connection.lost")


def test_an_entry_with_too_many_fields_to_be_moved_stays_where_it_is(
    stage: StreamStage, redis_server: RedisServer
) -> None:
    """Z6, X6: half of it would be no copy; it is put aside, and the exit code tells."""
    with redis_server.client() as client:
        client.xadd(stage.stream, {f"f{number}": b"1" for number in range(5000)})
    stage.publish({"n": 1})
    process = stage.consume("yes")
    assert process.returncode == 4, process.stderr[-2000:]
    assert [call["message"] for call in stage.calls()] == [{"n": 1}]
    assert len(process.lines("message.put_aside")) == 1
    assert len(stage.streams.pending(stage.stream)) == 1
    assert stage.dead_letters() == []


@pytest.fixture(
    params=[b"\xff" * 64, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*-7\r\n"], ids=["noise", "web", "count"]
)
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that answers everything with the same nonsense."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while client.recv(65536):
                client.sendall(request.param)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_server_that_cannot_be_understood_is_given_up(stage: StreamStage, stranger: str) -> None:
    """RB13: the same nonsense after every try ends the process with a clear line, soon."""
    process = stage.start("yes", "--reconnect-max", "100ms", "--startup-timeout", "20s", url=stranger)
    assert process.wait(15) in (1, 2)
    assert "protocol" in process.stderr or "cannot be read" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_publisher_that_is_not_told_how_it_went_says_so(
    stage: StreamStage, redis_server: RedisServer
) -> None:
    """S3: a hidden second try would add the entries twice."""
    with Proxy(redis_server.url) as proxy:
        proxy.lose_replies(b"XADD")
        lines = b"".join(json.dumps({"n": number}).encode() + b"\n" for number in range(3))
        process = stage.command("publish", "-", url=proxy.url_for(stage.url), stdin=lines)
        assert proxy.lost == 1
    assert process.returncode != 0
    bodies = stage.streams.bodies(stage.stream)
    assert len(bodies) == len(set(bodies))


def test_a_full_server_refuses_to_be_published_to(
    stage: StreamStage, redis_server: RedisServer, chronicle: StartChronicle
) -> None:
    """S-e: and says why."""
    redis_server.configure(maxmemory="1", maxmemory_policy="noeviction")
    try:
        process = stage.command("publish", "-", stdin=b'{"n": 1}\n')
    finally:
        redis_server.configure(maxmemory="0")
    assert process.returncode not in (0, None)
    assert "memory" in process.stderr
    assert stage.streams.length(stage.stream) == 0
