"""Garbage on a real queue (brokers.md, G1 to G8): the process survives it and the next message is handled.

Header tables that no client encodes are published with frames made by hand, and dead letters that no client
decodes are read with chronicle's own transport.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from struct import pack
from typing import Final

import pika
import pytest

from chronicle.core.body import MAX_BODY
from chronicle.core.delivery import Delivery
from chronicle.engine.breaker import LIMIT
from chronicle.proca.keystore import new_pair
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.seam import Connector
from conformance.harness import opened
from support import raw_amqp, samples
from support.fixtures import Broker, StartChronicle
from support.stage import PATIENCE, Stage, counted, stopped
from support.waiting import wait_for

GOOD: Final = samples.body("action-plain.json")
NEXT: Final = GOOD.replace(b"1001", b"2002")
MOST: Final = MAX_BODY
DEEP: Final = 100_000


def with_comment(json_value: bytes) -> bytes:
    """A good message but for the supporter's comment."""
    return GOOD.replace(b'"For the forests"', json_value)


INVALID: Final[Mapping[str, bytes]] = {
    "G1 one byte too many": GOOD.ljust(MOST + 1),
    "G2 nothing": b"",
    "G3 not UTF-8": with_comment(b'"\xff\xfe"'),
    "G3 UTF-16": GOOD.decode().encode("utf-16"),
    "G4 nested arrays": b"[" * DEEP + b"]" * DEEP,
    "G4 nested objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "G4 nested in a message": with_comment(b"[" * DEEP + b"]" * DEEP),
    "G4 never closed": with_comment(b"[" * DEEP),
    "G5 5000 digits": with_comment(b"9" * 5000),
    "G5 not a number": with_comment(b"NaN"),
    "X2 a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "X2 half a surrogate pair": with_comment(rb'"\ud800"'),
    "Z2 gzip": gzip.compress(GOOD),
    "Z2 pickle": pickle.dumps(json.loads(GOOD)),
}
HANDLED: Final[Mapping[str, bytes]] = {
    "G1 as large as allowed": GOOD.ljust(MOST),
    "G5 a key twice": with_comment(b'"first", "comment": "second"'),
    "G5 300 digits": with_comment(b"9" * 300),
}
# G6: the entries of a header table, as they stand on the wire.
POISON: Final[Mapping[str, bytes]] = {
    "a timestamp in milliseconds": raw_amqp.short(b"when") + b"T" + pack(">Q", 1_700_000_000_000),
    "a table 2000 levels deep": raw_amqp.nested(2000),
    "names and texts that are not UTF-8": raw_amqp.short(b"\xff\xfe") + b"S" + raw_amqp.long(b"\x80\xff"),
    "a list with a table 2000 levels deep": (
        raw_amqp.short(b"x") + b"A" + raw_amqp.long(b"F" + raw_amqp.long(raw_amqp.nested(2000)))
    ),
}


@pytest.fixture(params=["classic", "quorum"])
def stage(request: pytest.FixtureRequest, rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path, quorum=request.param == "quorum")


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """The samples' key store, as only its owner can read it."""
    return _key_file(tmp_path, samples.body("keys.json"))


def _key_file(folder: Path, content: bytes) -> str:
    file = folder / "keys.json"
    file.touch(mode=0o600)
    file.write_bytes(content)
    return str(file)


def dead_letters(stage: Stage, count: int) -> list[Delivery]:
    """So many dead letters, with their envelopes as the broker sent them; they stay where they are."""
    transport = opened(RabbitTransport(Connector(stage.url, stage.dead, prefetch=100)))
    found: list[Delivery] = []

    def enough() -> bool:
        found.extend(transport.receive(100, 0.1))
        return len(found) >= count

    try:
        wait_for(enough, PATIENCE, f"{count} dead letters", every=0)
    finally:
        transport.close()
    return found


def handled(stage: Stage) -> list[int]:
    return [call["message"]["actionId"] for call in stage.calls()]


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
def test_bad_input_ends_among_the_dead_letters(stage: Stage, body: bytes) -> None:
    """G1 to G5, X1, X2, Z2, Z6, Z12."""
    properties = pika.BasicProperties(content_type="application/x-python-serialize", delivery_mode=2)
    stage.publish(body, properties=properties)
    stage.publish(NEXT)
    process = stage.consume("yes")
    assert process.returncode == 0, process.stderr
    assert handled(stage) == [2002]
    assert counted(process) == {"received": 3, "ack": 1, "nack": 2, "requeued": 1, "rejected": 1}
    (dead,) = stage.dead_letters(1)
    assert dead.body == body
    assert dead.properties.content_type == "application/x-python-serialize"


@pytest.mark.parametrize("body", HANDLED.values(), ids=HANDLED)
def test_odd_input_reaches_the_syncer(stage: Stage, body: bytes) -> None:
    """G1, G5: what the rules allow is handled like anything else."""
    stage.publish(body, NEXT)
    process = stage.consume("yes")
    assert process.returncode == 0, process.stderr
    assert handled(stage) == [1001, 2002]
    assert counted(process) == {"received": 2, "ack": 2}


@pytest.mark.parametrize("entries", POISON.values(), ids=POISON)
def test_G6_poison_headers_harm_nobody(stage: Stage, entries: bytes) -> None:
    """G6, RB13: a header table is looked at by whoever wants it; the message is handled."""
    raw_amqp.publish(stage.queues, stage.queue, GOOD, entries)
    stage.publish(NEXT)
    process = stage.consume("yes", "--max-retries", "1")
    assert process.returncode == 0, process.stderr
    assert handled(stage) == [1001, 2002]
    assert counted(process) == {"received": 2, "ack": 2}
    assert stopped(process)["reconnects"] == 0


@pytest.mark.parametrize("entries", POISON.values(), ids=POISON)
def test_G6_poison_headers_are_kept_in_the_dead_letters(stage: Stage, entries: bytes) -> None:
    """G6, Z6: nobody decodes and encodes them on the way."""
    raw_amqp.publish(stage.queues, stage.queue, GOOD, entries)
    process = stage.consume("no")
    assert process.returncode == 0, process.stderr
    (dead,) = dead_letters(stage, 1)
    assert dead.body == GOOD
    assert entries in dead._raw


def test_G8_sealed_messages_end_where_they_should(stage: Stage, keys: str) -> None:
    """G8, D-20: opened with the right key, passed on sealed without it, dead-lettered when damaged."""
    names = ("", "-rotated-key", "-unknown-key", "-damaged")
    bodies = [samples.body(f"action-encrypted{name}.json") for name in names]
    stage.publish(*bodies, NEXT)
    process = stage.consume("yes", "--keys", keys)
    assert process.returncode == 0, process.stderr

    contacts = {call["message"]["actionId"]: call["message"]["contact"] for call in stage.calls()}
    sealed = json.loads(bodies[2])
    damaged = json.loads(bodies[3])
    expected = samples.message("expected-decrypted.json")
    assert set(contacts) == {1002, 1003, 1004, 2002}
    assert damaged["actionId"] not in contacts
    assert contacts[1002].items() >= expected["action-encrypted.json"].items()
    assert contacts[1003].items() >= expected["action-encrypted-rotated-key.json"].items()
    assert contacts[1004] == sealed["contact"]
    (noted,) = [line for line in process.lines("message.acked") if "notes" in line]
    assert (noted["action_id"], noted["level"]) == (1004, "info")
    (told,) = process.lines("keys.sealed_passed_on")
    assert (told["action_id"], told["level"]) == (1004, "warning")
    (dead,) = stage.dead_letters(1)
    assert dead.body == bodies[3]


def test_G8_with_require_decryption_a_sealed_message_is_bad_input(stage: Stage, keys: str) -> None:
    """D-20."""
    body = samples.body("action-encrypted-unknown-key.json")
    stage.publish(body, NEXT)
    process = stage.consume("yes", "--keys", keys, "--require-decryption")
    assert process.returncode == 0
    assert handled(stage) == [2002]
    (dead,) = stage.dead_letters(1)
    assert dead.body == body


@pytest.mark.parametrize("policy", ["requeue-once", "dead-letter"])
def test_Z7_a_wrong_key_store_does_not_empty_the_queue(stage: Stage, tmp_path: Path, policy: str) -> None:
    """Z7: after so many in a row the process ends with code 2; the rest stays where it is."""
    public, private = new_pair()
    wrong = _key_file(tmp_path, json.dumps({public: {"private": private}}).encode())
    body = samples.body("action-encrypted.json")
    stage.publish(*[body] * (3 * LIMIT))
    process = stage.consume("yes", "--keys", wrong, "--require-decryption", "--on-invalid", policy)
    assert process.returncode == 2, process.stderr
    assert stopped(process)["exit_code"] == 2
    assert "chronicle keys check" in process.stderr
    assert private not in process.stderr
    assert stage.calls() == []
    dead = stage.dead_letters(counted(process).get("rejected", 0))
    left = stage.left(3 * LIMIT - len(dead))
    assert len(dead) < LIMIT
    assert [message.body for message in (*dead, *left)] == [body] * (3 * LIMIT)
