"""The databases the SQL syncer supports: how to connect, and what their errors mean."""

from __future__ import annotations

import importlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import unquote

from chronicle.errors import SettingError

PATIENCE: Final = 10  # seconds for a lock, and for a server to be reached

BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Kind(Enum):
    """What an error is due to: a passing condition, the data, or neither."""

    TRANSIENT = auto()
    DATA = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """A database error without its text."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Database:
    """Connections autocommit; `mark` is the placeholder for a value in a statement."""

    connect: Callable[[], Any]
    mark: str
    explain: Callable[[Exception], Fault]


def database_at(url: str, setting: str) -> Database:
    """The database a URL names; `setting` is the variable it came from."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        path = unquote(rest[1:])
        return Database(lambda: _open_sqlite(path), "?", _explain_sqlite)
    if scheme in ("postgresql", "postgres"):
        return _postgresql(url, setting)
    raise SettingError(
        f"{setting} is not a database this syncer knows", "use sqlite:///file.db or postgresql://…"
    )


def _open_sqlite(path: str) -> sqlite3.Connection:
    # Made here and not by SQLite, which would make a file that others can read.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # In this mode anything less than FULL may lose the last commits in a power cut.
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _explain_sqlite(error: Exception) -> Fault:
    if not isinstance(error, sqlite3.Error):
        return Fault(Kind.OTHER, type(error).__name__)
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    # The low byte is the kind of error, the rest a detail of it.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY:
        return Fault(Kind.TRANSIENT, name)
    return Fault(Kind.DATA if isinstance(error, sqlite3.DataError) else Kind.OTHER, name)


def _postgresql(url: str, setting: str) -> Database:
    try:
        psycopg: Any = importlib.import_module("psycopg")
    except ImportError:
        raise SettingError(
            f"{setting} is a PostgreSQL database and psycopg is not installed",
            "pip install 'psycopg[binary]'",
        ) from None

    def connect() -> Any:
        wait = PATIENCE * 1000
        connection = psycopg.connect(url, autocommit=True, connect_timeout=PATIENCE, tcp_user_timeout=wait)
        try:
            # A statement that waits forever would hold up every worker.
            connection.execute(f"SET statement_timeout = {wait}")
        except BaseException:
            connection.close()
            raise
        return connection

    def explain(error: Exception) -> Fault:
        name = " ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None))))
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return Fault(Kind.TRANSIENT, name)
        return Fault(Kind.DATA if isinstance(error, psycopg.DataError) else Kind.OTHER, name)

    return Database(connect, "%s", explain)
