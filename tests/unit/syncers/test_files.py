"""The syncers that append to a file: whole lines, on disk, whatever happens to the writer."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.errors import DeadLetter, SettingError
from chronicle_syncers.csvfile import CsvFile, cell, end_row, parse_fields, row
from chronicle_syncers.jsonlines import JsonLines
from support.proca_messages import CANARY, action, event
from support.waiting import wait_for

WRITER = """
import sys, threading
from chronicle_syncers.jsonlines import JsonLines
def work(first):
    for n in range(first, 10**9, 4):
        assert syncer({"actionId": n, "text": "x" * 5000}) is True
        with lock:
            print(n, flush=True)
lock = threading.Lock()
with JsonLines() as syncer:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def jsonl(path: Path) -> JsonLines:
    return JsonLines({"CHRONICLE_JSONL_FILE": str(path)})


def csv_file(path: Path, fields: str = "") -> CsvFile:
    return CsvFile({"CHRONICLE_CSV_FILE": str(path), "CHRONICLE_CSV_FIELDS": fields})


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file, strict=True))


@pytest.mark.parametrize("syncer", [jsonl, csv_file])
def test_a_new_file_is_private(tmp_path: Path, syncer: Any) -> None:
    path = tmp_path / "out"
    with syncer(path) as sync:
        assert sync(action()) is True
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("syncer", [jsonl, csv_file])
def test_a_file_that_others_can_use_or_that_is_a_link_is_refused(tmp_path: Path, syncer: Any) -> None:
    """Z8: as for a key store; nothing is written, and the error has the command that mends it."""
    path, link, twin = tmp_path / "out", tmp_path / "link", tmp_path / "twin"
    path.touch(0o644)
    with pytest.raises(SettingError, match="others can read") as caught, syncer(path):
        pass
    assert caught.value.remedy == f"chmod 600 {path}"
    path.chmod(0o600)
    link.symlink_to(path)
    os.link(path, twin)
    for name in (link, twin):
        with pytest.raises(SettingError, match="link"), syncer(name):
            pass
    twin.unlink()
    if os.geteuid() == 0:  # only root can give a file away
        os.chown(path, 12345, -1)
        with pytest.raises(SettingError, match="another user"), syncer(path):
            pass
    assert path.read_bytes() == b""


def test_a_link_in_place_of_a_rotated_file_is_not_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "out", tmp_path / "target"
    target.touch(0o600)
    with jsonl(path) as sync:
        assert sync(action(1)) is True
        path.rename(tmp_path / "out.1")
        path.symlink_to(target)
        with pytest.raises(SettingError, match="symbolic link"):
            sync(action(2))
        path.unlink()
        path.symlink_to(tmp_path / "out.1")
        with pytest.raises(SettingError, match="symbolic link"):
            sync(action(3))
    assert (target.read_bytes(), len(lines(tmp_path / "out.1"))) == (b"", 1)


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with jsonl(path) as sync, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(sync, (action(n) for n in range(400))))
    assert sorted(line["actionId"] for line in lines(path)) == list(range(400))
    assert lines(path)[0] == action(lines(path)[0]["actionId"])


def test_true_means_on_disk_and_waiting_threads_share_one_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    first_is_syncing, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow_fsync(file: int) -> None:
        synced.append(path.read_bytes().count(b"\n"))
        first_is_syncing.set()
        assert go_on.wait(30)

    with jsonl(path) as sync, ThreadPoolExecutor(9) as pool:
        monkeypatch.setattr(os, "fsync", slow_fsync)
        first = pool.submit(sync, action(0))
        assert first_is_syncing.wait(30)
        others = [pool.submit(sync, action(n)) for n in range(1, 9)]
        wait_for(lambda: len(sync._file._next.lines) == 8, 30, "eight lines that wait")
        assert not any(future.done() for future in [first, *others])
        go_on.set()
        assert all(future.result(30) for future in [first, *others])
    assert synced == [1, 9]


def test_a_disk_that_fails_is_told_to_every_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_fsync(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with jsonl(tmp_path / "out.jsonl") as sync, ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(os, "fsync", broken_fsync)
        futures = [pool.submit(sync, action(n)) for n in range(40)]
        assert [type(future.exception(30)) for future in futures] == [OSError] * 40


def test_a_killed_process_loses_nothing_it_said_it_had(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    environ = {**os.environ, "CHRONICLE_JSONL_FILE": str(path)}
    said: list[int] = []
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, env=environ) as process:
            assert process.stdout is not None
            said += [int(process.stdout.readline()) for _ in range(40)]
            process.send_signal(signal.SIGKILL)
            said += [
                int(line) for line in process.stdout.read().splitlines(keepends=True) if line[-1:] == b"\n"
            ]
    with jsonl(path) as sync:
        assert sync({"actionId": -1}) is True
    whole = []
    for line in path.read_bytes().splitlines():
        try:
            whole.append(json.loads(line)["actionId"])
        except ValueError:  # at most the half line of a kill, alone on its line
            continue
    assert set(said) <= set(whole)
    assert whole[-1] == -1


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    environ = {**os.environ, "CHRONICLE_JSONL_FILE": str(path)}
    command = [sys.executable, "-c", WRITER.replace("10**9", "200")]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert sorted(line["actionId"] for line in lines(path)) == sorted([*range(200), *range(200)])


def test_a_half_line_is_ended_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.touch(0o600)
    path.write_bytes(b'{"actionId":1}\n{"acti')
    with jsonl(path) as sync:
        assert sync({"actionId": 2}) is True
    assert path.read_bytes() == b'{"actionId":1}\n{"acti\n{"actionId":2}\n'


def test_a_write_that_fails_leaves_no_half_line(tmp_path: Path) -> None:
    """A full disk: the bytes that fitted are taken back, and the error is not a verdict."""
    path = tmp_path / "out.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with jsonl(path) as sync:
        assert sync({"actionId": 1}) is True
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            with pytest.raises(OSError) as caught:
                sync(action(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert CANARY not in str(caught.value)
        assert lines(path) == [{"actionId": 1}]
        assert sync({"actionId": 3}) is True
    assert lines(path) == [{"actionId": 1}, {"actionId": 3}]


def test_a_rotated_file_gets_no_more_lines(tmp_path: Path) -> None:
    path, old = tmp_path / "out.csv", tmp_path / "out.csv.1"
    with csv_file(path, "id=actionId") as sync:
        assert sync(action(1)) is True
        path.rename(old)
        assert sync(action(2)) is True
        path.unlink()
        assert sync(action(3)) is True
    assert rows(old) == [["id"], ["1"]]
    assert rows(path) == [["id"], ["3"]]


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    with jsonl(tmp_path / "out") as sync:
        pass
    with pytest.raises(ValueError, match="closed"):
        sync(action())


def test_wrong_settings_are_named_before_any_message(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="CHRONICLE_JSONL_FILE is not set"):
        JsonLines({})
    with pytest.raises(SettingError, match="CHRONICLE_CSV_FILE is not set"):
        CsvFile({})
    for path in (tmp_path, tmp_path / "nowhere" / "out", Path("/dev/null")):
        with pytest.raises(SettingError, match="CHRONICLE_JSONL_FILE"), jsonl(path):
            pass
    for fields in ("email", "a=b&a=c", "=a", "a=", "&"):
        with pytest.raises(SettingError, match="CHRONICLE_CSV_FIELDS"):
            csv_file(tmp_path / "out", fields)


def test_default_columns_and_one_header(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    for message in (action(), event()):
        with csv_file(path) as sync:
            assert sync(message) is True
    header, first, second = rows(path)
    assert dict(zip(header, first, strict=True)) == {
        "action_id": "1001",
        "schema": "proca:action:2",
        "action_type": "register",
        "event_type": "",
        "created_at": "2026-03-02T10:11:12Z",
        "campaign": "forests",
        "org": "your_org",
        "email": f"{CANARY}@example.org",
        "first_name": CANARY,
        "last_name": "Wójcik",
        "country": "PL",
        "postcode": "00-950",
        "opt_in": "true",
    }
    assert dict(zip(header, second, strict=True))["event_type"] == "email_status"


def test_other_columns_need_another_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with csv_file(path, "id=actionId") as sync:
        sync(action())
    with pytest.raises(SettingError, match="another header"), csv_file(path, "mail=contact.email"):
        pass


def test_a_field_map_may_be_percent_encoded() -> None:
    assert parse_fields("E%26mail=contact.email&id=actionId") == (
        ("E&mail", "contact.email"),
        ("id", "actionId"),
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n=", " =", "＝"])
def test_no_cell_is_a_formula(start: str) -> None:
    assert cell(f"{start}1+1").startswith("'")
    assert cell(-5) == "-5"


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ("x;=cmd|' /C calc'!A0", "x;'=cmd|' /C calc'!A0"),
        ("x\t=1+1", "x\t'=1+1"),
        ("x; =1", "x;' =1"),
        ('x;"=1"', 'x;\'"=1"'),
        ("x;;\t=1;@a", "x;;\t'=1;'@a"),
        (";=1", ";'=1"),
        ("\t=1", "'\t'=1"),
        (["x;=1"], '["x;\'=1"]'),
        ("one; two - three", "one; two - three"),
        ("a=b", "a=b"),
    ],
)
def test_no_part_of_a_cell_is_a_formula_where_a_semicolon_or_a_tab_separates(value: Any, safe: str) -> None:
    """Quotes do not help there: they do not begin the spreadsheet's cell."""
    assert cell(value) == safe
    cells = re.split("[;\t]", row([value, "last"]).decode().rstrip("\n"))
    assert not any(part.strip(' "').startswith(tuple("=+-@")) for part in cells)


def test_a_cell_full_of_separators_costs_what_its_length_costs() -> None:
    assert cell("\t" * 500_000 + "x" + "; " * 500_000)


@given(st.lists(st.text() | st.none() | st.booleans() | st.integers(-(2**60), 2**60), min_size=2, max_size=5))
def test_a_row_is_one_line_that_reads_back(values: list[Any]) -> None:
    line = row(values).decode()
    assert line.count("\n") == 1
    assert list(csv.reader([line], strict=True)) == [[cell(value) for value in values]]


@given(st.lists(st.text('a",'), min_size=2, max_size=4), st.data())
def test_a_half_row_never_swallows_the_next(values: list[str], data: st.DataObject) -> None:
    line = row(values)
    half = line[: data.draw(st.integers(1, len(line) - 1))]
    mended = (half + end_row(half) + b"next,row\n").decode()
    assert list(csv.reader(mended.splitlines()))[-1] == ["next", "row"]


def test_csv_keeps_no_half_of_a_sealed_supporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row has no place for ciphertext: without the keys the message is put aside, not acknowledged."""
    monkeypatch.setenv("CHRONICLE_CSV_FILE", str(tmp_path / "a.csv"))
    with CsvFile() as sync, pytest.raises(DeadLetter, match="--keys"):
        sync({"actionId": 1, "personalInfo": {"payload": "x"}, "contact": {"email": None}})
