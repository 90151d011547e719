"""The file itself: how it is created, opened and recognised, and how its problems are reported.

Rule 1: the file appears complete or not at all, readable by its owner only; one that is not ours, or is newer
        than we are, is left as it is.
Rule 2: no sqlite3 error leaves this package: everything that touches the file goes through `translated`.
Rule 3: a file that is damaged while it is open ends the run: opening it again would not mend it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from chronicle.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnreachable,
    ClientFailed,
    ConnectionLost,
)

APPLICATION: Final = 0x6368726E  # "chrn", in the header of the file
VERSION: Final = 1
BUSY_SECONDS: Final = 5.0  # how long opening and publishing wait for other writers
SCHEMA: Final = f"""
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE queues (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE contents (id INTEGER PRIMARY KEY, body BLOB NOT NULL, envelope BLOB);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL REFERENCES queues,
    published_at INTEGER NOT NULL,
    available_at INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    redelivered INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    death BLOB
);
CREATE INDEX ready ON messages (queue, id) WHERE owner IS NULL AND available_at IS NULL;
CREATE INDEX kept_back ON messages (queue, available_at) WHERE owner IS NULL AND available_at IS NOT NULL;
CREATE INDEX held ON messages (owner) WHERE owner IS NOT NULL;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
"""

PROBLEMS: Final = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk is full or failing",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a chronicle queue file",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PERM: "cannot be opened: permission denied",
    sqlite3.SQLITE_TOOBIG: "cannot hold a message of this size",
}
REMEDIES: Final = {
    sqlite3.SQLITE_CORRUPT: "restore a backup, or name another file",
    sqlite3.SQLITE_NOTADB: "name another file in --url local:FILE",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "check that it is a file, and that it and its folder are writable for this user",
    sqlite3.SQLITE_PERM: "make the file and its folder writable for this user",
    sqlite3.SQLITE_TOOBIG: "publish a smaller message",
}
# What passes by itself, or when space is freed: the connection stays usable.
PASSING: Final = {
    sqlite3.SQLITE_BUSY: "end the process that keeps it locked, or wait for it with --startup-timeout",
    sqlite3.SQLITE_FULL: "free space on the disk",
    sqlite3.SQLITE_IOERR: "look at the disk: how full it is, and what the system's log says about it",
}
DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # as seen in a file that was open


class Stalled(ConnectionLost):
    """The file cannot be used at the moment; what was begun was rolled back and may be tried again."""

    def __init__(self, problem: str, *, needs_room: bool) -> None:
        super().__init__(problem)
        self.needs_room = needs_room  # someone must free space on the disk


@contextmanager
def translated(place: str, *, opening: bool) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, place, opening=opening) from error


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that must exist; transactions are begun by hand."""
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def check(db: sqlite3.Connection, place: str) -> None:
    """Refuse a file that is not ours, is newer than this version, or cannot be written."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        code = sqlite3.SQLITE_NOTADB
        raise BrokerRefused(f"{place} {PROBLEMS[code]}", REMEDIES[code])
    if version != VERSION:
        raise BrokerRefused(
            f"{place} was written by a newer chronicle: file version {version}, this one knows {VERSION}",
            "upgrade chronicle, or name another file in --url local:FILE",
        )
    # SQLite silently opens a file it may not write; only a write shows it.
    db.execute("BEGIN IMMEDIATE")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("ROLLBACK")


def create(path: Path, place: str) -> None:
    """Create an empty queue file, unless there is one."""
    if path.exists():
        return
    # Built aside and linked into place: if two create it at once one wins, and a kill leaves no partial file.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        with translated(place, opening=True):
            db = connect(aside)
            try:
                db.executescript(SCHEMA)
            finally:
                db.close()
        with suppress(FileExistsError):
            os.link(aside, path)
    except OSError as error:
        raise BrokerRefused(
            f"{place} cannot be created: {error.strerror}", "name a file in a folder this user can write to"
        ) from error
    finally:
        for left in (aside, f"{aside}-wal", f"{aside}-shm", f"{aside}-journal"):
            with suppress(OSError):
                os.unlink(left)


def explain(error: sqlite3.Error, place: str, *, opening: bool) -> BrokerError | BrokerRefused | ClientFailed:
    """Say what is wrong with the file; once it is open, only damage makes retrying pointless."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    problem = f"{place} {PROBLEMS.get(code, f'does not work: {error}')}"
    if not opening and code in PASSING:
        return Stalled(problem, needs_room=code != sqlite3.SQLITE_BUSY)
    if not opening and code in DAMAGED:
        return ClientFailed(f"{place} {PROBLEMS[sqlite3.SQLITE_CORRUPT]}", REMEDIES[sqlite3.SQLITE_CORRUPT])
    if not opening:
        return ConnectionLost(problem)
    if code in REMEDIES:
        return BrokerRefused(problem, REMEDIES[code])
    return BrokerUnreachable(problem, PASSING.get(code, ""))
