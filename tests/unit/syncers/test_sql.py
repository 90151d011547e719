"""The SQL syncer on real SQLite files."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import stat
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chronicle import ChronicleError, DeadLetter, Retry
from chronicle.errors import Ask, SettingError
from chronicle_syncers import _database
from chronicle_syncers.sql import Sql
from support.proca_messages import CANARY, action, event

SECRET = "canary-secret"


def sql(path: Path, table: str = "", clock: Callable[[], float] = lambda: 0.0) -> Sql:
    return Sql({"CHRONICLE_SQL_URL": f"sqlite:///{path}", "CHRONICLE_SQL_TABLE": table}, clock)


def ask(path: Path, question: str) -> list[Any]:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(question)]
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "actions.db"


def test_an_action_is_a_row(path: Path) -> None:
    with sql(path) as sync:
        assert sync(action()) is True
    [row] = ask(path, "SELECT * FROM actions")
    assert json.loads(row.pop("message")) == action()
    assert row == {
        "action_id": 1001,
        "received_at": "1970-01-01T00:00:00.000+00:00",
        "schema": "proca:action:2",
        "campaign": "forests",
        "org": "your_org",
        "action_type": "register",
        "created_at": "2026-03-02T10:11:12Z",
        "email": f"{CANARY}@example.org",
        "first_name": CANARY,
        "last_name": "Wójcik",
        "country": "PL",
        "postcode": "00-950",
        "opt_in": 1,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_action_that_comes_twice_is_one_row(path: Path) -> None:
    times = iter([0.0, 60.0])
    with sql(path, clock=lambda: next(times)) as sync:
        assert sync(action()) is True
        assert sync(action(country="BE")) is True
    [row] = ask(path, "SELECT * FROM actions")
    assert row["country"] == "BE"
    assert row["received_at"].startswith("1970-01-01T00:00:00")


def test_what_is_no_action_goes_to_the_second_table(path: Path) -> None:
    """An event with the id of an action must not overwrite it."""
    messages = [
        event(),
        event(),
        dict(reversed(event().items())),
        action(None),
        action(10**40),
        {},
        {"actionId": True},
    ]
    with sql(path) as sync:
        assert all(sync(message) for message in [action(), *messages])
    assert len(ask(path, "SELECT * FROM actions")) == 1
    rows = ask(path, "SELECT event_type, message FROM actions_events")
    assert len(rows) == 5
    assert event() in [json.loads(row["message"]) for row in rows]
    assert "email_status" in [row["event_type"] for row in rows]


def test_fields_of_another_type_are_kept_as_json(path: Path) -> None:
    with sql(path) as sync:
        assert sync(action(email=["a"], postcode=1000, country={"a": 1})) is True
        assert sync({"actionId": 7, "contact": "nobody", "privacy": {"optIn": "yes"}}) is True
    first, second = ask(path, "SELECT * FROM actions ORDER BY action_id DESC")
    assert (first["email"], first["postcode"], first["country"]) == ('["a"]', "1000", '{"a":1}')
    assert (second["email"], second["opt_in"]) == (None, None)


def test_threads_and_several_syncers_share_a_file(path: Path) -> None:
    with ThreadPoolExecutor(4) as starters:
        syncers = list(starters.map(lambda _: sql(path).__enter__(), range(4)))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: syncers[n % 4](action(n // 2)), range(200)))
    for sync in syncers:
        sync.__exit__(None, None, None)
    assert ask(path, "SELECT count(*) AS n FROM actions") == [{"n": 100}]


def test_a_locked_database_means_another_try(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database, "PATIENCE", 0.05)
    with sql(path) as sync:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retry, match="SQLITE_BUSY") as caught:
            sync(action())
        other.execute("ROLLBACK")
        other.close()
        assert CANARY not in "".join(traceback.format_exception(caught.value))
        assert sync(action()) is True
    assert len(ask(path, "SELECT * FROM actions")) == 1


def test_any_other_error_is_fatal_and_quotes_no_row(path: Path) -> None:
    """D-16, D-21."""
    with sql(path) as sync:
        other = sqlite3.connect(path)
        other.execute(
            "CREATE TRIGGER no BEFORE INSERT ON actions BEGIN SELECT RAISE(ABORT, 'canary-person'); END"
        )
        other.close()
        with pytest.raises(ChronicleError, match="SQLITE_CONSTRAINT_TRIGGER") as caught:
            sync(action())
        assert not isinstance(caught.value, Ask)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_message_that_cannot_be_written_is_dead_lettered(path: Path) -> None:
    with sql(path) as sync, pytest.raises(DeadLetter) as caught:
        sync(action(firstName=f"{CANARY}\ud800"))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_wrong_settings_are_named_before_any_message(path: Path, tmp_path: Path) -> None:
    for url in ("", "sqlite:///", "sqlite://file.db", f"mysql://user:{SECRET}@host/db"):
        with pytest.raises(SettingError, match="CHRONICLE_SQL_URL") as caught:
            Sql({"CHRONICLE_SQL_URL": url})
        assert SECRET not in str(caught.value)
    for table in ('a"; DROP TABLE b; --', "1a", "a.b", "a" * 56):
        with pytest.raises(SettingError, match="CHRONICLE_SQL_TABLE"):
            sql(path, table)
    for nowhere in (tmp_path / "no" / "folder.db", tmp_path):
        with pytest.raises(SettingError, match="CHRONICLE_SQL_URL"), sql(nowhere):
            pass


def test_a_table_of_another_shape_is_refused_at_start(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE people (name TEXT)")
    other.close()
    with pytest.raises(SettingError, match="cannot be used"), sql(path, "people"):
        pass
    with sql(path, "select") as sync:
        assert sync(action()) is True


@pytest.mark.skipif(importlib.util.find_spec("psycopg") is not None, reason="psycopg is installed")
def test_postgresql_says_what_is_missing() -> None:
    with pytest.raises(SettingError, match="psycopg is not installed") as caught:
        Sql({"CHRONICLE_SQL_URL": f"postgresql://user:{SECRET}@127.0.0.1/db"})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
