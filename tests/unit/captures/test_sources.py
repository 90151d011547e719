"""Messages from files: what `replay` and `publish` read."""

from __future__ import annotations

import io
import itertools
import json
import os
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chronicle.captures.file import open_capture
from chronicle.captures.sources import read_messages
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.encryption import Secret, SecretKind, encrypt_whole
from chronicle.core.record import dump, to_record
from chronicle.errors import SettingError
from support.samples import FOLDER, body

RECORD = Delivery(
    b"\xff{",
    queue="other",
    transport="rabbitmq",
    redelivered=True,
    origin={"exchange": "x"},
    envelope=Envelope({"h": b"\0"}),
)


def write(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


def bodies(path: str) -> list[bytes]:
    return [delivery.body for delivery in read_messages([path], "q")]


def test_a_document_over_many_lines_is_one_message_with_its_exact_bytes() -> None:
    path = str(FOLDER / "action-plain.json")
    (delivery,) = read_messages([path], "q")
    assert delivery.body == body("action-plain.json")
    assert (delivery.queue, delivery.transport) == ("q", "file")
    assert delivery.origin == {"file": path, "line": 1}


def test_json_lines_are_one_message_each_with_their_exact_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", b'\n{"a": 1}\r\n  \n {"b":2} \n{"c":3}')
    deliveries = list(read_messages([path], "q"))
    assert [delivery.body for delivery in deliveries] == [b'{"a": 1}', b' {"b":2} ', b'{"c":3}']
    assert [delivery.origin["line"] for delivery in deliveries] == [2, 4, 5]


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}',
        b'\n {"a": 1}\n\n',
        b"{\n}",
        b"[\n 1,\n 2\n]",
        b'[\n{"a": 1}\n]',
        b'{"a":\n{"b": 1}\n}',
        b'{"a": 1,\n"b": 2}',
    ],
)
def test_one_document_is_the_bytes_of_its_file(tmp_path: Path, content: bytes) -> None:
    assert bodies(write(tmp_path, "a.json", content)) == [content]


def test_a_line_that_is_not_json_is_a_message_too(tmp_path: Path) -> None:
    for first in (b"not json", b"\xff\xfe", b'{"cut": "o', b"]"):
        path = write(tmp_path, "a.jsonl", first + b'\n{"a": 1}\n{"b"\n')
        assert bodies(path) == [first, b'{"a": 1}', b'{"b"']


def test_D_14_records_come_back_as_the_deliveries_they_were(tmp_path: Path) -> None:
    line = dump(to_record(RECORD))
    pretty = json.dumps(to_record(RECORD), indent=2).encode()
    for content in (line, line + b"\n" + line, pretty):
        for delivery in read_messages([write(tmp_path, "a.jsonl", content)], "q"):
            assert (delivery.body, delivery.queue, delivery.redelivered) == (b"\xff{", "other", True)
            assert delivery.headers == {"h": b"\0"}
            assert delivery.origin == {"exchange": "x"}


def test_records_and_plain_messages_may_be_mixed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", b'{"a": 1}\n' + dump(to_record(RECORD)) + b'\n{"base64": "x"}\n')
    assert bodies(path) == [b'{"a": 1}', b"\xff{", b'{"base64": "x"}']


def test_a_damaged_record_is_never_taken_for_a_message(tmp_path: Path) -> None:
    record = to_record(RECORD)
    record["body"] = {"base64": "!secret!"}
    messages = read_messages([write(tmp_path, "a.jsonl", b"{}\n" + dump(record))], "q")
    assert next(messages).body == b"{}"
    with pytest.raises(SettingError, match=r"a\.jsonl, line 2") as caught:
        next(messages)
    assert "secret" not in str(caught.value)


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, "b.json", b'{"n": 2}')
    write(tmp_path, "a.jsonl", b'{"n": 0}\n{"n": 1}')
    write(tmp_path, "c.txt", b"no message")
    (tmp_path / "d.json").mkdir()
    assert bodies(str(tmp_path)) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']


def test_standard_input_is_read_where_a_dash_stands() -> None:
    deliveries = list(read_messages(["-"], "q", io.BytesIO(b'{"a": 1}\n{"b": 2}\n')))
    assert [delivery.body for delivery in deliveries] == [b'{"a": 1}', b'{"b": 2}']
    assert deliveries[0].origin == {"file": "-", "line": 1}


def test_an_empty_file_has_no_messages(tmp_path: Path) -> None:
    assert bodies(write(tmp_path, "a.json", b"")) == []
    assert bodies(write(tmp_path, "b.json", b" \n\n")) == []


def test_D_9_what_is_missing_is_found_before_the_first_message(tmp_path: Path) -> None:
    good = write(tmp_path, "a.json", b"{}")
    empty = tmp_path / "empty"
    empty.mkdir()
    for paths in ([good, str(tmp_path / "none")], [good, str(empty)], []):
        with pytest.raises(SettingError) as caught:
            read_messages(paths, "q")
        assert caught.value.remedy


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_D_9_what_cannot_be_read_is_found_before_the_first_message(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", b"{}")
    os.chmod(path, 0)
    with pytest.raises(SettingError):
        read_messages([path], "q")


def test_json_lines_are_not_read_ahead() -> None:
    """A capture of gigabytes must not be loaded: an endless one is as good."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            view = memoryview(buffer)  # type: ignore[arg-type]
            line = b'{"a": 1}\n'
            count = len(view) // len(line) * len(line)
            view[:count] = line * (count // len(line))
            return count

    endless = read_messages(["-"], "q", io.BufferedReader(Endless(), 900))
    assert [delivery.body for delivery in itertools.islice(endless, 1000)] == [b'{"a": 1}'] * 1000


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_file_that_grows_is_read_as_far_as_it_went_when_it_was_opened(
    tmp_path: Path, encrypted: bool
) -> None:
    """Whoever writes what they read into the same file would never come to an end."""
    path = tmp_path / "capture.jsonl"
    file = open_capture(str(path), (lambda: SECRET) if encrypted else None)
    file.write([to_record(RECORD)] * 2)
    found = read_messages([str(path)], "q", ask=lambda _kind, _name: SECRET)
    number = 0
    for _ in itertools.islice(found, 10):
        number += 1
        file.write([to_record(RECORD)] * 100)
    assert number == 2


def test_a_file_on_standard_input_is_no_longer_than_it_was_either(tmp_path: Path) -> None:
    """What was read of it before, by somebody else, is not counted."""
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"{}\n" * 3)
    with open(path, "rb") as stdin, open(path, "ab", buffering=0) as more:
        stdin.readline()
        found = read_messages(["-"], "q", stdin)
        number = 0
        for _ in itertools.islice(found, 10):
            number += 1
            more.write(b"{}\n" * 10_000)
    assert number == 2


SECRET = Secret(SecretKind.KEY, b"k" * 32)
SHORT = {"p" * 43: {"private": "s" * 43}}


@pytest.mark.parametrize(
    "store",
    [
        SHORT,
        {**SHORT, "q" * 43: {"public": "q" * 43, "private": "s" * 43}},
        {"p" * 43: {"note": "old", "private": "s" * 43}},
        {"p" * 43: "s" * 43, "q" * 43: "t" * 43 + "="},
        {**SHORT, "signKeys": ["j" * 43]},
        {"signKeys": ["j" * 43], **SHORT},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_key_store_is_never_a_message(tmp_path: Path, store: dict[str, object], indent: int | None) -> None:
    """Z8: it is found before the first message goes out, on standard input when it is read."""
    content = json.dumps(store, indent=indent).encode()
    write(tmp_path, "a.json", b"{}")
    path = write(tmp_path, "keys.json", content)
    with pytest.raises(SettingError, match=r"keys\.json is a key store, not a message") as caught:
        read_messages([path], "q")
    assert "sss" not in f"{caught.value}{caught.value.remedy}"
    with pytest.raises(SettingError, match="key store"):
        list(read_messages(["-"], "q", io.BytesIO(content)))
    encrypted = encrypt_whole(content, SECRET, os.urandom)
    with pytest.raises(SettingError, match="key store"):
        list(read_messages([write(tmp_path, "locked.json", encrypted)], "q", ask=lambda _kind, _name: SECRET))


@pytest.mark.parametrize("locked", [False, True])
def test_in_a_folder_a_key_store_is_left_out(tmp_path: Path, locked: bool) -> None:
    """With a word about it, whether it is locked or not."""
    store = json.dumps(SHORT).encode()
    write(tmp_path, "a.json", b"{}")
    path = write(tmp_path, "keys.json", encrypt_whole(store, SECRET, os.urandom) if locked else store)
    told: list[str] = []
    found = read_messages([str(tmp_path)], "q", ask=lambda _kind, _name: SECRET, tell=told.append)
    assert [message.body for message in found] == [b"{}"]
    assert told == [f"{path} is a key store, not a message: it is left out"]
    (tmp_path / "a.json").unlink()
    with pytest.raises(SettingError, match="no messages in the folder"):
        read_messages([str(tmp_path)], "q", ask=lambda _kind, _name: SECRET)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"signKeys": []},
        {"signKeys": ["x"], "n": 1},
        {"id": "x" * 43, "n": 1},
        {"a": {"private": True}, "b": 2},
        {"token": "x" * 44},
        {"a": {"b": {}}},
    ],
)
def test_a_message_is_not_taken_for_a_key_store(tmp_path: Path, message: dict[str, object]) -> None:
    content = json.dumps(message).encode()
    assert bodies(write(tmp_path, "m.json", content)) == [content]


def nested(levels: int, inner: object = 1) -> object:
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "damage",
    [
        {"chronicle": {"a": nested(900)}},
        {"headers": {"a": nested(900)}},
        {"headers": {"a": {"$decimal": "9" * 5000}}},
        {"headers": {"a": {"$decimal": "1e999999999"}}},
        {"headers": {"a": {"$int": "0x" + "f" * 5000}}},
        {"headers": {"a": {"$float": "9" * 5000}}},
        {"headers": {"a": {"$datetime": "0001-01-01T00:00:00"}}},
        {"headers": {"a": {"$datetime": "9999-12-31T23:59:59"}}},
        {"headers": {"a": {"$datetime": "0001-01-01T00:00:00+14:00"}}},
        {"properties": {"timestamp": {"$datetime": "9999-12-31T23:59:59-14:00"}}},
        {"chronicle": {"at": {"$datetime": "0001-01-01T00:00:00"}}},
        {"chronicle": {"duration_ms": {"$decimal": "9" * 5000}}},
    ],
)
def test_Z12_a_hostile_record_is_one_clear_error_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: dict[str, Any]
) -> None:
    """What would fail, or take for ever, wherever somebody looks at it later is refused when it is read."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")  # where the first of January of the year 1 has no UTC
    time.tzset()
    good = to_record(Delivery(b"{}", queue="q", transport="rabbitmq"))
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"".join(dump(record) + b"\n" for record in (good, good | damage)))
    try:
        with pytest.raises(SettingError, match=r"hostile.jsonl, line 2: a damaged record: ") as caught:
            list(read_messages([str(path)], "plain"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "99999" not in str(caught.value)


def test_what_brokers_really_send_is_read(tmp_path: Path) -> None:
    headers = {
        "first": datetime(1970, 1, 1, tzinfo=UTC),
        "last": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "decimal": Decimal("-2147483648e-255"),
        "whole": 2**63,
        "not finite": Decimal("-Infinity"),
    }
    came = Delivery(b"{}", queue="q", transport="rabbitmq", envelope=Envelope(headers))
    path = tmp_path / "honest.jsonl"
    path.write_bytes(dump(to_record(came)) + b"\n")
    assert [dict(message.headers) for message in read_messages([str(path)], "plain")] == [headers]
