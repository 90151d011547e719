"""Canaries (Z3 to Z6, Z10): a token in every field of a message, and a secret, that must never be printed.

Every value a producer can choose holds the token, a number of its own, and characters that would steer a
terminal or begin a new line. What may be shown by design is left as it is: the fields of `HARMLESS`, and the
routing key (R-000-44), whose control characters must be written out. The most is said at the level debug, so
that is where every case runs; the other levels say less of the same.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from nacl.public import Box, PrivateKey, PublicKey

from chronicle.proca.keystore import decode, encode, new_pair
from chronicle.telemetry.redaction.fields import HARMLESS
from support import samples
from support.fixtures import Broker, StartChronicle
from support.ports import free_ports
from support.process import ChronicleProcess
from support.stage import PATIENCE, Stage

TOKEN: Final = "cnry"
LABEL: Final = (
    "hdrx"  # what a message's headers and properties hold: another word, so that none covers for one
)
FORGERY: Final = '\r\n\x1b[2J{"event": "forged"}\u202e\x9b31m'
FORMATS: Final = ("json", "pretty")
ROUTING_KEY: Final = "register.\x1b[31m\r\nforged"
SECRET: Final = "s3cr3t-p@ss/wörd"
ENCODED: Final = "s3cr3t-p%40ss%2Fw%C3%B6rd"

# How a run can go wrong, and the exit code it then has.
CASES: Final[Mapping[str, tuple[str, tuple[str, ...], int]]] = {
    "returns False": ("no", (), 0),
    "raises": ("raises", (), 1),
    "raises, which is a failure": ("raises", ("--on-exception", "fail"), 0),
    "raises with what it took out of the message": ("takes_out", (), 1),
    "returns the data": ("word", (), 1),
    "raises SystemExit with the data": ("leaves", (), 1),
    "raises DeadLetter with the data": ("dead_letters", (), 0),
    "raises Drop with the data": ("drops", (), 0),
    "raises Retry with the data": ("retries", (), 0),
    "logs the data and prints it in a thread": ("complains", (), 1),
}


def canaries(token: str = TOKEN) -> Iterator[str]:
    return (f"{token}{number:03d}{FORGERY}" for number in count())


def with_canaries(value: Any, found: Iterator[str], path: tuple[str, ...] = ()) -> Any:
    """The same message with a canary for every text of it."""
    if isinstance(value, dict):
        return {key: with_canaries(inner, found, (*path, key)) for key, inner in value.items()}
    if isinstance(value, str) and path not in HARMLESS:
        return next(found)
    return value


def plain_message() -> dict[str, Any]:
    found = canaries()
    message: dict[str, Any] = with_canaries(samples.message("action-plain.json"), found)
    message["action"]["customFields"] |= {
        next(found): next(found),
        "list": [next(found), {"deeper": [next(found)]}],
        "number": 7391046258,
    }
    return message


def sealed_message() -> dict[str, Any]:
    """The same with its contact sealed for the samples' key."""
    message = plain_message()
    secret, message["contact"] = message["contact"], {"contactRef": None, "email": None}
    (receiver, *_) = samples.message("keys.json")
    public, private = new_pair()
    box = Box(PrivateKey(decode(private)), PublicKey(decode(receiver)))
    sealed = box.encrypt(json.dumps(secret).encode())
    message["personalInfo"] = {
        "payload": encode(sealed.ciphertext),
        "nonce": encode(sealed.nonce),
        "encryptKey": {"id": 1, "public": receiver},
        "signKey": {"id": 2, "public": public},
    }
    return message


BODIES: Final = {
    "plain": json.dumps(plain_message()).encode(),
    "sealed": json.dumps(sealed_message()).encode(),
}
INVALID: Final = {
    "not JSON": BODIES["plain"][:-1],
    "not an object": json.dumps([plain_message()]).encode(),
    "an unknown schema": json.dumps(plain_message() | {"schema": next(canaries())}).encode(),
    "a schema that is an object": json.dumps(plain_message() | {"schema": plain_message()}).encode(),
    "a campaign that is a text": json.dumps(plain_message() | {"campaign": next(canaries())}).encode(),
    "sealed data that is none": json.dumps(plain_message() | {"personalInfo": next(canaries())}).encode(),
    "sealed data of canaries": json.dumps(
        plain_message()
        | {"personalInfo": with_canaries(sealed_message()["personalInfo"], canaries(), ("x",))}
    ).encode(),
    "a key that is not in the store": samples.body("action-encrypted-unknown-key.json").replace(
        b'"contactRef"', json.dumps(next(canaries())).encode() + b': 1, "contactRef"'
    ),
}


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    file = tmp_path / "keys.json"
    file.touch(mode=0o600)
    file.write_bytes(samples.body("keys.json"))
    return str(file)


def publish(stage: Stage, body: bytes) -> None:
    """By way of an exchange, so that the routing key is the producer's choice."""
    found = canaries(LABEL)
    properties = pika.BasicProperties(
        headers={"name": next(found), next(found)[:100]: {"nested": [next(found)]}},
        content_type=next(found),
        correlation_id=next(found),
        reply_to=next(found),
        message_id=next(found),
        type=next(found),
        app_id=next(found),
        delivery_mode=2,
    )
    exchange = f"{stage.queue}.in"
    with stage.queues.channel() as channel:
        channel.confirm_delivery()
        channel.exchange_declare(exchange, exchange_type="topic", durable=True)
        stage.queues.exchanges.append(exchange)
        channel.queue_bind(stage.queue, exchange, "#")
        channel.basic_publish(exchange, ROUTING_KEY, body, properties, mandatory=True)


def assert_silent(process: ChronicleProcess) -> None:
    """No canary, no secret, nothing that steers a terminal or forges a line."""
    printed = process.printed
    text = printed.decode()
    for word in (TOKEN, LABEL, "7391046258", SECRET, ENCODED, "s3cr3t"):
        assert word not in text.lower(), _around(text, word)
    for steering in ("\x1b", "\r", "\x9b", "\u202e"):
        assert steering not in text, _around(text, steering)
    assert not [line for line in text.splitlines() if line.startswith('{"event"')]


def _around(text: str, word: str) -> str:
    at = text.lower().index(word)
    return repr(text[max(0, at - 300) : at + 100])


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("case", CASES)
def test_whatever_a_syncer_does_nothing_personal_is_printed(
    stage: Stage, keys: str, case: str, kind: str, log_format: str
) -> None:
    """Z4, Z5, Z6, Z10, D-21."""
    syncer, options, code = CASES[case]
    publish(stage, BODIES[kind])
    process = stage.consume(
        syncer, *options, "--keys", keys, "--log-level", "debug", "--log-format", log_format
    )
    assert process.returncode == code, process.stderr
    assert_silent(process)
    assert stage.calls(), "the syncer was never called"
    assert TOKEN in json.dumps(stage.calls()[0]["message"]["contact"])
    kept = [*stage.left(0), *stage.dead_letters(0)]
    if syncer in ("drops", "retries"):
        assert kept == []
    else:
        kept = kept or stage.dead_letters(1)
        assert [message.body for message in kept] == [BODIES[kind]]


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
def test_whatever_is_wrong_with_a_message_nothing_of_it_is_printed(
    stage: Stage, keys: str, body: bytes, log_format: str
) -> None:
    """Z4, Z5, Z6, Z10: the reason tells sizes and places, never content."""
    publish(stage, body)
    options = ("--keys", keys, "--require-decryption", "--log-level", "debug", "--log-format", log_format)
    process = stage.consume("yes", *options)
    assert process.returncode == 0, process.stderr
    assert_silent(process)
    assert stage.calls() == []
    (dead,) = stage.dead_letters(1)
    assert dead.body == body


@pytest.mark.parametrize("level", ["info", "warning", "error"])
@pytest.mark.parametrize("log_format", FORMATS)
def test_the_other_levels_are_as_silent(stage: Stage, level: str, log_format: str) -> None:
    """Z5."""
    publish(stage, BODIES["plain"])
    process = stage.consume("raises", "--log-level", level, "--log-format", log_format)
    assert process.returncode == 1
    assert_silent(process)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("failure", ["refused", "wrong password", "a wrong URL"])
def test_the_password_is_never_printed(stage: Stage, failure: str, log_format: str, level: str) -> None:
    """Z3, Z4: in the environment, in whatever goes wrong with the connection."""
    port = free_ports(1)[0]
    place, code = {
        "refused": (f"127.0.0.1:{port}/", 3),
        "wrong password": (stage.url.rpartition("@")[2], 2),
        "a wrong URL": ("127.0.0.1:port/", 2),
    }[failure]
    options = ("--startup-timeout", "300ms", "--log-format", log_format, "--log-level", level)
    process = stage.start("yes", *options, env={"CHRONICLE_URL": f"amqp://guest:{ENCODED}@{place}"})
    assert process.wait(PATIENCE) == code, process.stderr
    assert_silent(process)


@pytest.mark.parametrize("log_format", FORMATS)
def test_a_password_the_syncer_quotes_is_hidden(stage: Stage, rabbit: Broker, log_format: str) -> None:
    """Z4: the password of the URL is known, so it is found in whatever anybody logs."""
    user = stage.queues.name("user")
    rabbit.node.api.add_user(user, SECRET)
    rabbit.node.api.set_permissions(user, "", "", stage.queue)
    url = f"amqp://{user}:{ENCODED}@{stage.url.rpartition('@')[2]}"
    stage.publish(samples.body("action-plain.json"))
    process = stage.consume(
        "quotes_the_url", "--log-level", "debug", "--log-format", log_format, env={"CHRONICLE_URL": url}
    )
    assert process.returncode == 1
    assert "quoted" in process.stderr
    assert_silent(process)


def test_the_routing_key_is_written_out(stage: Stage) -> None:
    """Z10, R-000-44."""
    publish(stage, BODIES["plain"])
    process = stage.consume("yes")
    (acked,) = process.lines("message.acked")
    assert acked["routing_key"] == r"register.\x1b[31m\r\nforged"
    assert_silent(process)


def test_the_canaries_are_there() -> None:
    """A negative control: the message really holds what must not be printed."""
    message = copy.deepcopy(plain_message())
    assert json.dumps(message).count(TOKEN) > 15
    assert TOKEN in message["contact"]["email"]
    assert message["campaign"]["name"] == "forests"
