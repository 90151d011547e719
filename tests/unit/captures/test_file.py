"""Capture files: private, complete, locked, and continued."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.captures import file as file_module
from chronicle.captures.file import CaptureFile, open_capture
from chronicle.captures.recorder import Recorder
from chronicle.captures.sources import FileReader, find_messages
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.encryption import MAGIC, Secret, SecretKind, encrypt_whole
from chronicle.core.outcome import Action, Asked, Failed, Invalid, Outcome, Synced, Verdict
from chronicle.core.record import from_record, to_record
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import Drop, SettingError
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import Silent
from support.files import as_root

# A key: deriving one from a passphrase is dear, on purpose.
KEY: Final = Secret(SecretKind.KEY, b"k" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture.jsonl"


def record(number: int) -> dict[str, Any]:
    return to_record(Delivery(b"%d" % number, queue="q", transport="rabbitmq"))


def write(path: Path, *numbers: int, secret: Secret | None = None, said: list[str] | None = None) -> None:
    tell = ([] if said is None else said).append
    file = open_capture(str(path), (lambda: secret) if secret else None, tell=tell)
    file.write([record(number) for number in numbers])
    file.close()


def read(path: Path, said: list[str] | None = None, secret: Secret = KEY) -> list[int]:
    tell = ([] if said is None else said).append
    reader = FileReader("plain", ask=lambda _kind, _name: secret, tell=tell)
    return [int(found.delivery.body) for found in find_messages([str(path)], reader)]


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """No file can grow beyond this, as on a full disk; SIGXFSZ is ignored by Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("secret", [None, KEY])
def test_a_capture_is_private_and_grows(path: Path, secret: Secret | None) -> None:
    """D-21: bodies are personal data."""
    write(path, 1, 2, secret=secret)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write(path, 3, secret=secret)
    said: list[str] = []
    assert read(path, said) == [1, 2, 3]
    assert not said


def test_what_others_can_read_is_refused(path: Path) -> None:
    path.touch(0o644)
    with pytest.raises(SettingError, match="others can read") as caught:
        open_capture(str(path), None)
    assert "chmod 600" in caught.value.remedy


@as_root
def test_a_capture_of_somebody_else_is_refused(path: Path) -> None:
    """Z8: run as root, its owner would read every message that is appended."""
    path.touch(0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(SettingError, match="belongs to another user") as caught:
        open_capture(str(path), None)
    assert "chown root" in caught.value.remedy
    assert path.read_bytes() == b""


def test_a_capture_with_a_second_name_is_refused(path: Path, tmp_path: Path) -> None:
    path.touch(0o600)
    os.link(path, tmp_path / "other")
    with pytest.raises(SettingError, match="hard link"):
        open_capture(str(path), None)


def test_links_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "pipe", ".", "missing/file", "a\0b"):
        with pytest.raises(SettingError):
            open_capture(str(tmp_path / name), None)
    assert not (tmp_path / "target").exists()


def test_a_new_one_must_not_exist(path: Path) -> None:
    open_capture(str(path), None, new=True).close()
    with pytest.raises(SettingError, match="already exists"):
        open_capture(str(path), None, new=True)


def test_one_writer_at_a_time(path: Path) -> None:
    file = open_capture(str(path), None)
    with pytest.raises(SettingError, match="another process"):
        open_capture(str(path), None)
    file.close()
    write(path, 1)


def test_encrypted_and_plain_are_not_mixed(tmp_path: Path) -> None:
    plain, encrypted = tmp_path / "plain", tmp_path / "encrypted"
    write(plain, 1)
    write(encrypted, 1, secret=KEY)
    with pytest.raises(SettingError, match="not encrypted"):
        write(plain, 2, secret=KEY)
    with pytest.raises(SettingError, match="is encrypted"):
        write(encrypted, 2)
    with pytest.raises(SettingError, match="does not decrypt"):
        write(encrypted, 2, secret=Secret(SecretKind.KEY, b"w" * 32))
    assert (read(plain), read(encrypted)) == ([1], [1])


@pytest.mark.parametrize("secret", [None, KEY])
@pytest.mark.parametrize("torn", [1, 20])
def test_an_incomplete_line_is_skipped_and_removed(path: Path, secret: Secret | None, torn: int) -> None:
    """A writer killed in the middle of a line: readers say so, the next writer mends it."""
    write(path, 1, 2, 3, secret=secret)
    lines = path.read_bytes().splitlines(True)
    last = 2 if secret is None else 3
    path.write_bytes(b"".join(lines[:last]) + lines[last][:torn])
    said: list[str] = []
    assert read(path, said) == [1, 2]
    assert len(said) == 1
    repaired: list[str] = []
    file = open_capture(str(path), (lambda: secret) if secret else None, tell=repaired.append)
    file.write([record(4)])
    file.close()
    assert len(repaired) == 1
    said = []
    assert (read(path, said), said) == ([1, 2, 4], [])


@pytest.mark.parametrize("torn", [1, 5, 16, 60])
@pytest.mark.parametrize("secret", [None, KEY])
def test_a_first_line_that_is_incomplete_is_removed(path: Path, secret: Secret | None, torn: int) -> None:
    write(path, 1, secret=secret)
    os.truncate(path, torn)
    said: list[str] = []
    write(path, 2, secret=secret, said=said)
    assert (read(path), len(said)) == ([2], 1)


@pytest.mark.parametrize("secret", [None, KEY])
def test_a_capture_may_begin_with_a_record_of_any_size(path: Path, secret: Secret | None) -> None:
    file = open_capture(str(path), (lambda: secret) if secret else None)
    file.write([to_record(Delivery(b"1" * 3_000_000, queue="q", transport="rabbitmq"))])
    file.close()
    write(path, 2, secret=secret)
    reader = FileReader("plain", ask=lambda _kind, _name: KEY)
    assert [len(found.delivery.body) for found in find_messages([str(path)], reader)] == [3_000_000, 1]


@pytest.mark.parametrize(
    "content",
    [
        b'{"pppp": {"private": "s"}}',
        b"\n",
        b"notes\nmore",
        b"{}\n{}\n{",
        b'{"transport":"bus","line":4}',
        b'{"transport":"bus","line":4}\n{"transport":"tram","li',
        encrypt_whole(b'{"pppp": {"private": "s"}}', KEY, os.urandom),
        encrypt_whole(b'{"pppp": {"private": "s"}}', KEY, os.urandom)[:-9],
    ],
)
@pytest.mark.parametrize("secret", [None, KEY])
def test_what_is_no_capture_stays_as_it_is(path: Path, content: bytes, secret: Secret | None) -> None:
    """A key store without a last newline was cut to nothing, as what a killed writer had left."""
    path.write_bytes(content)
    path.chmod(0o600)
    locked = secret is None and content.startswith(MAGIC)
    with pytest.raises(SettingError, match="is encrypted" if locked else "is not a capture") as caught:
        open_capture(str(path), (lambda: secret) if secret else None)
    assert "name another file" in caught.value.remedy
    assert path.read_bytes() == content


@pytest.mark.parametrize("secret", [None, KEY])
def test_a_full_disk_leaves_only_whole_lines(path: Path, secret: Secret | None) -> None:
    file = open_capture(str(path), (lambda: secret) if secret else None)
    file.write([record(1)])
    with full_at(path.stat().st_size + 100), pytest.raises(OSError, match="large"):
        file.write([record(2), record(3)])
    file.write([record(4)])
    file.close()
    said: list[str] = []
    assert (read(path, said), said) == ([1, 4], [])


def test_a_full_disk_makes_no_file_longer_that_somebody_has_made_shorter(path: Path) -> None:
    """As logrotate does with `copytruncate`."""
    file = open_capture(str(path), None)
    file.write([record(1), record(2)])
    os.truncate(path, 0)
    with full_at(10), pytest.raises(OSError, match="large"):
        file.write([record(3)])
    file.write([record(4)])
    file.close()
    said: list[str] = []
    assert (read(path, said), said) == ([4], [])


def test_a_damaged_end_is_not_gone_on_with(path: Path) -> None:
    write(path, 1, 2, secret=KEY)
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1]]))
    with pytest.raises(SettingError, match="its last line"):
        write(path, 3, secret=KEY)


def test_an_old_end_spliced_back_is_found(path: Path) -> None:
    """The file was cut and went on differently; then somebody put the old lines back at their numbers."""
    write(path, 1, 2, 3, 4, secret=KEY)
    old = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join(old[:2]))
    write(path, 5, 6, 7, secret=KEY)
    new = path.read_bytes().splitlines(True)
    assert len(old) == len(new)
    assert read(path) == [1, 5, 6, 7]
    for cut in range(3, len(new)):
        path.write_bytes(b"".join(new[:cut] + old[cut:]))
        with pytest.raises(SettingError, match=f"line {cut + 1}: it was changed or moved"):
            read(path)


def test_many_runs_chain_on_and_read_only_the_end_of_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kills and empty runs included; what a run reads does not grow with the file."""
    amounts: list[int] = []

    def counted(descriptor: int, amount: int, offset: int) -> bytes:
        amounts[-1] += amount
        return pread(descriptor, amount, offset)

    pread = os.pread
    monkeypatch.setattr(file_module, "CHUNK", 64)
    monkeypatch.setattr(os, "pread", counted)
    for number in range(40):
        amounts.append(0)
        file = open_capture(str(path), lambda: KEY)
        if number % 3 == 0:
            file.write([record(number)])
        if number % 4 == 0:
            file.abandon()  # a kill: no closing line
        else:
            file.close()
    said: list[str] = []
    assert (read(path, said), said) == ([number for number in range(40) if number % 3 == 0], [])
    assert max(amounts[20:]) < 1.2 * max(amounts[5:20])


class Witness(Silent):
    """Remembers the events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def event(self, name: str, level: int, text: str, **facts: Any) -> None:
        self.seen.append((name, text))


def settled(number: int, action: Action, outcome: Outcome, fate: Fate = Fate.DONE) -> Settlement:
    envelope = Envelope({"h": b"\0"}, {"message_id": "m"})
    delivery = Delivery(b"%d" % number, queue="q", transport="rabbitmq", counted=1, envelope=envelope)
    return Settlement(delivery, outcome, Verdict(action, "why"), seconds=0.0125, fate=fate)


def observed(path: Path) -> tuple[CaptureFile, Witness, Recorder]:
    file, witness = open_capture(str(path), None), Witness()
    return file, witness, Recorder(witness, file, "capture.jsonl", clock=lambda: 7.0)


def test_only_what_has_come_to_its_end_is_captured(path: Path) -> None:
    """A record per final settlement, after settling, with outcome, verdict, reason and duration."""
    _, witness, capturing = observed(path)
    capturing.settled(
        [
            settled(1, Action.ACK, Synced()),
            settled(2, Action.REQUEUE, Failed()),
            settled(3, Action.RETRY, Failed()),
            settled(4, Action.ACK, Synced(), Fate.STALE),
            settled(5, Action.DEAD_LETTER, Invalid("bad")),
            settled(6, Action.DEAD_LETTER, Failed(), Fate.FAILED),
            settled(7, Action.LEAVE, Failed()),
            settled(8, Action.DROP, Asked(Drop(), "no")),
        ]
    )
    capturing.close(Counters())
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [int(from_record(one).body) for one in records] == [1, 5, 8]
    assert [(one["chronicle"]["outcome"], one["chronicle"]["verdict"]) for one in records] == [
        ("synced", "ack"),
        ("invalid", "dead-letter"),
        ("asked", "drop"),
    ]
    assert records[0]["chronicle"] == {
        "outcome": "synced",
        "verdict": "ack",
        "reason": "why",
        "duration_ms": 12.5,
        "attempts": 2,
        "at": 7000,
    }
    assert dict(from_record(records[0]).headers) == {"h": b"\0"}
    assert not witness.seen


def test_a_capture_that_cannot_be_written_stops_the_run_loudly(path: Path) -> None:
    """Nothing is lost but records: the log tells how many, and the run takes no more messages."""
    _, witness, capturing = observed(path)
    asked: list[str] = []
    capturing.attach(asked.append)
    capturing.settled([settled(1, Action.ACK, Synced())])
    with full_at(path.stat().st_size + 10):
        capturing.settled([settled(2, Action.ACK, Synced()), settled(3, Action.ACK, Synced())])
        capturing.settled([settled(4, Action.ACK, Synced())])
    capturing.close(Counters())
    assert (capturing.failed, capturing.missing, len(asked)) == (True, 3, 1)
    assert [name for name, _ in witness.seen] == [events.CAPTURE_FAILED] * 2
    assert "3 messages" in witness.seen[-1][1]
    assert read(path) == [1]


def test_an_encrypted_capture_that_misses_records_does_not_pass_for_a_whole_one(path: Path) -> None:
    """There may be room again when the run ends: the closing line would say that its writer was done."""
    capturing = Recorder(Witness(), open_capture(str(path), lambda: KEY), "capture.encrypted")
    capturing.settled([settled(1, Action.ACK, Synced())])
    with full_at(path.stat().st_size + 10):
        capturing.settled([settled(2, Action.ACK, Synced())])
    capturing.close(Counters())
    said: list[str] = []
    assert read(path, said) == [1]
    assert "no closing line" in said[0]


@pytest.mark.parametrize("refusal", [SettingError("no passphrase"), KeyboardInterrupt()])
@pytest.mark.parametrize("new", [True, False])
def test_without_a_secret_no_file_is_made(tmp_path: Path, refusal: BaseException, new: bool) -> None:
    """A passphrase that nobody gave, or Ctrl-C at the question, leaves nothing behind."""

    def secret() -> Secret:
        raise refusal

    with pytest.raises(type(refusal)):
        open_capture(str(tmp_path / "capture.encrypted"), secret, new=new)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_without_room_for_its_first_line_is_removed(path: Path) -> None:
    with full_at(10), pytest.raises(SettingError, match="cannot be written"):
        open_capture(str(path), lambda: KEY, new=True)
    assert not path.exists()
