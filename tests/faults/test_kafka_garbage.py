"""G1–G5, G9 at Kafka: whatever a record holds, it ends in the syncer or among the dead letters, as it came.

And a broker that does not speak Kafka's protocol.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from support.fixtures import Kafka, StartChronicle
from support.kafka_mock import produce_raw
from support.topic_stage import TopicStage

MIB: Final = 1024 * 1024
OURS: Final = {
    "x-chronicle-reason", "x-chronicle-attempts", "x-chronicle-queue", "x-chronicle-consumer",
    "x-chronicle-first-failed-at", "x-chronicle-last-failed-at", "x-chronicle-partition",
    "x-chronicle-offset",
}  # fmt: skip
HEADERS: Final[list[tuple[str, str | bytes | None]]] = [
    ("twice", b"1"),
    ("twice", b"\xff\0"),
    ("none", None),
    ("", b"no name"),
    ("ä\r\n\x1b[31m", b""),
]
BODIES: Final[Mapping[str, bytes | None]] = {
    "G1 nearly as much as a record may hold": b'{"n": "' + b"x" * (MIB - 4096),
    "G1 5 MiB": b'{"n": "' + b"x" * (5 * MIB) + b'"}',
    "G2 empty": b"",
    "G3 invalid UTF-8": b'{"n": "\xff\xfe"}',
    "G4 deep arrays": b"[" * 100_000,
    "G4 deep objects": b'{"a":' * 100_000,
    "G5 a long number": b'{"n": ' + b"9" * 5000 + b"}",
    "G5 NaN": b'{"n": NaN}',
    "G9 a tombstone": None,
    "nul bytes": b"\0" * 100,
}


@pytest.fixture
def stage(kafka: Kafka, chronicle: StartChronicle, tmp_path: Path) -> TopicStage:
    return TopicStage(kafka, chronicle, tmp_path)


def test_hostile_bodies_end_among_the_dead_letters_as_they_came(
    kafka: Kafka, chronicle: StartChronicle, tmp_path: Path
) -> None:
    """G1–G5, G9, X1, X2, Z6, Z12, K5, K6: key, value and headers unchanged, and the next one is handled."""
    topics = kafka.server.topics
    stage = TopicStage(kafka, chronicle, tmp_path)
    # The second topic takes what the first takes, and a little more, as `declare` makes it.
    topic = stage.topic = topics.make(topics.name("garbage"), 1, max_message_bytes=10 * MIB)
    stage.dead = topics.make(f"{topic}.dlq", 1, max_message_bytes=11 * MIB)
    with topics.producer(**{"message.max.bytes": 20 * MIB}) as producer:
        for number, body in enumerate(BODIES.values()):
            producer.produce(topic, body, f"key {number}".encode() if number % 2 else None, headers=HEADERS)
            producer.produce(topic, f'{{"n": {number}}}'.encode())
        assert producer.flush(30) == 0
    process = stage.consume("yes", "--on-invalid", "dead-letter")
    assert process.returncode == 0, process.stderr[-2000:]
    assert [call["message"] for call in stage.calls()] == [{"n": number} for number in range(len(BODIES))]
    letters = stage.dead_letters()
    assert len(letters) == len(BODIES)
    for number, (letter, body) in enumerate(zip(letters, BODIES.values(), strict=True)):
        assert letter.value == body
        assert letter.key == (f"key {number}".encode() if number % 2 else None)
        assert list(letter.headers[: len(HEADERS)]) == HEADERS
        told = dict(letter.headers[len(HEADERS) :])
        assert set(told) == OURS
        assert (told["x-chronicle-partition"], told["x-chronicle-offset"]) == (b"0", str(2 * number).encode())
        assert told["x-chronicle-queue"] == topic.encode()
    assert topics.lag(f"chronicle.{topic}", topic) == 0
    assert not process.lines("connection.lost")
    assert "Traceback" not in process.stderr
    assert "\x1b" not in process.stderr


def test_forged_facts_are_replaced_and_believed_by_nobody(stage: TopicStage) -> None:
    """Z16, K5: our own headers of an earlier death, in any form, occur once afterwards."""
    forged = [
        ("x-chronicle-attempts", b"9" * 400), ("x-chronicle-attempts", b"-1"),
        ("x-chronicle-offset", b"\xff"), ("x-chronicle-partition", None), ("x-chronicle-redrives", b"-1"),
        ("x-chronicle-first-failed-at", b"never"), ("x-chronicle-reason", b"\r\nforged"),
    ]  # fmt: skip
    stage.topics.publish(stage.topic, b'{"ok": false}', headers=forged)
    process = stage.consume("as_told", "--on-failure", "dead-letter")
    assert process.returncode == 0, process.stderr[-2000:]
    (letter,) = stage.dead_letters()
    names = [name for name, _ in letter.headers]
    assert sorted(names) == sorted(OURS | {"x-chronicle-redrives"})
    told = dict(letter.headers)
    assert (told["x-chronicle-attempts"], told["x-chronicle-partition"]) == (b"1", b"0")
    assert told["x-chronicle-offset"] == b"0"


def test_a_header_whose_name_is_no_text_harms_nobody(kafka: Kafka, stage: TopicStage) -> None:
    """G6, X1: the client cannot read such headers; a dead letter is without them, and that is said."""
    servers = kafka.server.address
    produce_raw(servers, stage.topic, b'{"ok": false}', (b"\xff\xfe", b"1"))
    produce_raw(servers, stage.topic, b'{"ok": true}', (b"plain", b"1"))
    process = stage.consume("as_told", "--on-failure", "dead-letter")
    assert process.returncode == 0, process.stderr[-2000:]
    assert [call["headers"] for call in stage.calls()] == ["{}", "{'plain': '1'}"]
    (letter,) = stage.dead_letters()
    assert letter.value == b'{"ok": false}'
    assert set(dict(letter.headers)) == OURS
    assert "offset 0 of partition 0" in process.lines("kafka.dead_letter_headers_lost")[0]["text"]
    assert stage.committed() == 2
    assert "Traceback" not in process.stderr


def test_aborted_transactions_are_never_delivered(kafka: Kafka, stage: TopicStage) -> None:
    """K2: markers and aborted records are gaps; the run ends, and everything counts as read."""
    servers = kafka.server.address
    producer = Producer({"bootstrap.servers": servers, "transactional.id": stage.topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(stage.topic, f'{{"n": {number}}}'.encode())
        if number % 2:
            producer.flush(30)  # aborted after they have been written
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    process = stage.consume("yes", "--prefetch", "4")
    assert process.returncode == 0, process.stderr[-2000:]
    assert [call["message"]["n"] for call in stage.calls()] == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert stage.topics.lag(stage.group, stage.topic) == 0
    again = stage.consume("yes")
    assert again.returncode == 0
    assert len(stage.calls()) == 9


@pytest.fixture(
    params=[b"\xff" * 64, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\1"],
    ids=["noise", "web", "short"],
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
    yield f"kafka://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_server_that_cannot_be_understood_is_given_up(stage: TopicStage, stranger: str) -> None:
    """RB13, K7: with a clear line, within the time for starting."""
    process = stage.start("yes", "--startup-timeout", "3s", url=stranger)
    assert process.wait(15) in (2, 3)
    assert "Traceback" not in process.stderr
    assert "127.0.0.1" in process.stderr
