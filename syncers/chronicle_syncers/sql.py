"""A syncer that stores each action as a row of a table, and everything else as a row of a second one.

Rule 1: an action has one row, however often its message arrives: the row is the latest message (an upsert
        by `action_id`), `received_at` is when the first one arrived.
Rule 2: events, and messages without an action id, go to `<table>_events`, keyed by the SHA-256 of their
        canonical JSON. The same message twice is one row.
Rule 3: True means committed. A locked database or a lost connection asks for another try, a value that the
        database cannot store dead-letters its message, any other error is fatal.
Rule 4: error texts name only the kind of error, because databases tend to quote the row they refused.

    CHRONICLE_SQL_URL      sqlite:///folder/file.db (four slashes for an absolute path), or
                           postgresql://user:password@host/name, for which psycopg 3 must be installed
    CHRONICLE_SQL_TABLE    the table, created if it does not exist; `actions` by default
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from chronicle import ChronicleError, DeadLetter, Retry
from chronicle.errors import SettingError
from chronicle_syncers._database import Fault, Kind, database_at
from chronicle_syncers._message import Message, action_id, as_json, as_text, lookup
from chronicle_syncers._settings import required

URL: Final = "CHRONICLE_SQL_URL"
TABLE: Final = "CHRONICLE_SQL_TABLE"

# PostgreSQL cuts names at 63 bytes, and `_events` must still fit.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,54}")

ACTION_COLUMNS: Final = {
    "action_id": "BIGINT PRIMARY KEY",
    "received_at": "TEXT NOT NULL",
    "schema": "TEXT",
    "campaign": "TEXT",
    "org": "TEXT",
    "action_type": "TEXT",
    "created_at": "TEXT",
    "email": "TEXT",
    "first_name": "TEXT",
    "last_name": "TEXT",
    "country": "TEXT",
    "postcode": "TEXT",
    "opt_in": "BOOLEAN",
    "message": "TEXT NOT NULL",
}
EVENT_COLUMNS: Final = {
    "digest": "TEXT PRIMARY KEY",
    "received_at": "TEXT NOT NULL",
    "schema": "TEXT",
    "event_type": "TEXT",
    "message": "TEXT NOT NULL",
}
TRIES_AT_START: Final = 5


class Sql:
    """Upserts messages over one connection, which all threads share in turn."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database_at(required(environ, URL, "sqlite:///actions.db"), URL)
        self._table = environ.get(TABLE, "").strip() or "actions"
        if not NAME.fullmatch(self._table):
            raise SettingError(f"{TABLE} is not a table name", "use letters, digits and _, 55 at most")
        mark = self._database.mark
        self._upsert_action = upsert(self._table, tuple(ACTION_COLUMNS), mark)
        self._upsert_event = upsert(f"{self._table}_events", tuple(EVENT_COLUMNS), mark)
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Any = None

    def __enter__(self) -> Sql:
        for attempt in range(1, TRIES_AT_START + 1):
            try:
                self._prepare()
                break
            except Exception as error:
                self._forget()
                fault = self._database.explain(error)
                # Processes that start together may collide over making the tables.
                if fault.kind is Kind.OTHER or attempt == TRIES_AT_START:
                    raise SettingError(
                        f"the database of {URL} cannot be used: {fault.name}",
                        f"check {URL}, and that the tables of {TABLE} have the columns of this syncer",
                    ) from None
                time.sleep(0.1 * attempt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A thread that outlived the drain may hold the lock: it is not waited for.
        if self._lock.acquire(timeout=1):
            self._forget()
            self._lock.release()

    def __call__(self, message: Message) -> bool:
        received_at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        number = action_id(message)
        if number is not None:
            statement, values = self._upsert_action, action_row(number, received_at, message)
        else:
            statement, values = self._upsert_event, event_row(received_at, message)
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._database.connect()
                self._connection.execute(statement, values)
            except Exception as error:
                fault = self._database.explain(error)
                if fault.kind is not Kind.DATA:
                    self._forget()
                raise _verdict(fault) from None
        return True

    def _prepare(self) -> None:
        self._connection = self._database.connect()
        for table, columns in ((self._table, ACTION_COLUMNS), (f"{self._table}_events", EVENT_COLUMNS)):
            listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
            self._connection.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({listed})')
            self._connection.execute(f'SELECT {", ".join(columns)} FROM "{table}" WHERE 1 = 0')

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


def _verdict(fault: Fault) -> ChronicleError:
    match fault.kind:
        case Kind.TRANSIENT:
            return Retry(f"the database is not available: {fault.name}")
        case Kind.DATA:
            return DeadLetter(f"the database cannot hold this message: {fault.name}")
        case Kind.OTHER:
            return ChronicleError(f"the database refused a row: {fault.name}")


def upsert(table: str, columns: tuple[str, ...], mark: str) -> str:
    """The statement that upserts a row by its first column; the second, `received_at`, is kept."""
    marks = ", ".join([mark] * len(columns))
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[2:])
    return (
        f'INSERT INTO "{table}" ({", ".join(columns)}) VALUES ({marks}) '
        f"ON CONFLICT ({columns[0]}) DO UPDATE SET {changes}"
    )


def action_row(number: int, received_at: str, message: Message) -> tuple[Any, ...]:
    """The values of ACTION_COLUMNS, in that order."""
    text = as_json(message).decode()
    opt_in = lookup(message, "privacy.optIn")
    paths = (
        "schema",
        "campaign.name",
        "org.name",
        "action.actionType",
        "action.createdAt",
        "contact.email",
        "contact.firstName",
        "contact.lastName",
        "contact.country",
        "contact.postcode",
    )
    fields = (as_text(lookup(message, path)) for path in paths)
    return (number, received_at, *fields, opt_in if isinstance(opt_in, bool) else None, text)


def event_row(received_at: str, message: Message) -> tuple[Any, ...]:
    """The values of EVENT_COLUMNS, in that order."""
    text = as_json(message, canonical=True)
    names = (as_text(lookup(message, path)) for path in ("schema", "eventType"))
    return (hashlib.sha256(text).hexdigest(), received_at, *names, text.decode())


sync = Sql
