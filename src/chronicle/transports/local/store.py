"""Every statement that reads or changes a queue file.

Rule 1: a message's content (`contents`) is written once and never changed; its state (`messages`) is
        a few numbers. So a dead letter is byte-identical by construction, and a claim costs the same
        whatever the size of the body.
Rule 2: every query goes through a partial index that has only the rows in question: a million messages that
        are waiting, delayed or dead-lettered do not slow down a claim.
Rule 3: a held row changes only under the token of its holder; a change that finds no row is the caller's to
        report.
Rule 4: changes belong inside `writing`, queries inside `reading`. A change that failed has changed nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from chronicle.errors import ConnectionLost
from chronicle.transports.local.schema import check, connect, translated

LEAVING: Final = 1.0  # seconds that a close may wait for other writers
PAGE: Final = 4096

NEXT_READY: Final = """
    SELECT 1 FROM messages INDEXED BY ready
    WHERE queue = ? AND owner IS NULL AND available_at IS NULL LIMIT 1"""
NEXT_DELAYED: Final = """
    SELECT available_at FROM messages INDEXED BY kept_back
    WHERE queue = ? AND owner IS NULL AND available_at IS NOT NULL ORDER BY available_at LIMIT 1"""
FREE_THE_DUE: Final = """
    UPDATE messages SET available_at = NULL WHERE id IN (
        SELECT id FROM messages INDEXED BY kept_back
        WHERE queue = ? AND owner IS NULL AND available_at IS NOT NULL AND available_at <= ?
        ORDER BY available_at LIMIT ?)"""
TAKE: Final = """
    SELECT m.id, m.published_at, m.tries, m.redelivered, m.death, c.body, c.envelope
    FROM messages AS m INDEXED BY ready CROSS JOIN contents AS c ON c.id = m.id
    WHERE m.queue = ? AND m.owner IS NULL AND m.available_at IS NULL ORDER BY m.id LIMIT ?"""
FAILED: Final = "owner = NULL, tries = tries + 1, redelivered = 1"
IF_HELD: Final = "WHERE id = ? AND owner = ? AND tries = ?"


class Row(NamedTuple):
    """A claimed message as it is stored; times are epoch milliseconds."""

    id: int
    published_at: int
    tries: int
    redelivered: int
    death: bytes | None
    body: bytes
    envelope: bytes | None


class Claim(NamedTuple):
    """What proves that a message is held: every requeue counts a try, so no proof is good twice."""

    id: int
    owner: str
    tries: int


class Store:
    """One connection to a queue file that exists."""

    def __init__(self, path: Path, place: str, *, durable: bool) -> None:
        """Open and check the file; a `durable` connection's commits outlast a power cut, at a price."""
        self._path = path
        self._place = place
        with translated(place, opening=True):
            self._db = connect(path)
            try:
                check(self._db, place)
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            except BaseException:
                self._db.close()
                raise
        self._file = _identity(path)

    def reading(self, *, opening: bool = False) -> AbstractContextManager[None]:
        """The context for queries, so that their errors become ours."""
        return translated(self._place, opening=opening)

    @contextmanager
    def writing(self, *, opening: bool = False) -> Iterator[None]:
        """One transaction, all or nothing."""
        with translated(self._place, opening=opening):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def wait_for_others(self, seconds: float) -> None:
        """How long a change waits for other writers from now on."""
        self._db.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def reserve(self, pages: int, *, opening: bool = False) -> None:
        """Make sure that this many pages can be written; they stay reserved in the write-ahead log.

        With next to no cache SQLite writes the pages of a change at once instead of at its commit. The
        rollback undoes the change but keeps the space: the log gets shorter only when the file is closed.
        """
        with translated(self._place, opening=opening):
            (cache,) = self._db.execute("PRAGMA cache_size").fetchone()
            self._db.execute("PRAGMA cache_size = 1")
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("INSERT INTO contents (id, body) VALUES (-1, zeroblob(?))", (pages * PAGE,))
            finally:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                self._db.execute(f"PRAGMA cache_size = {cache}")

    def confirm(self) -> None:
        """Check that the file still has its name: what is written to a removed one is lost."""
        if self._file is None or _identity(self._path) != self._file:
            raise ConnectionLost(f"{self._place} was removed or replaced while it was open")

    # --- queues -------------------------------------------------------------------------------------

    def queue_names(self) -> list[str]:
        return [name for (name,) in self._db.execute("SELECT name FROM queues ORDER BY name")]

    def queue_id(self, name: str) -> int | None:
        found = self._db.execute("SELECT id FROM queues WHERE name = ?", (name,)).fetchone()
        return None if found is None else int(found[0])

    def ensure_queue(self, name: str) -> int:
        self._db.execute("INSERT OR IGNORE INTO queues (name) VALUES (?)", (name,))
        queue = self.queue_id(name)
        assert queue is not None
        return queue

    def add(self, queue: int, now: int, contents: Iterable[tuple[bytes, bytes | None]]) -> None:
        for body, envelope in contents:
            id_ = self._db.execute(
                "INSERT INTO messages (queue, published_at) VALUES (?, ?)", (queue, now)
            ).lastrowid
            self._db.execute(
                "INSERT INTO contents (id, body, envelope) VALUES (?, ?, ?)", (id_, body, envelope)
            )

    # --- looking ------------------------------------------------------------------------------------

    def data_version(self) -> int:
        """A number that changes when another connection has changed the file."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def next_available(self, queue: int) -> int | None:
        """When the next message can be claimed: 0 for now, None if there is none."""
        if self._db.execute(NEXT_READY, (queue,)).fetchone():
            return 0
        kept = self._db.execute(NEXT_DELAYED, (queue,)).fetchone()
        return None if kept is None else int(kept[0])

    def count(self, queue: int) -> int:
        """Messages that are not held, delayed ones included."""
        (ready,) = self._db.execute(
            "SELECT count(*) FROM messages INDEXED BY ready"
            " WHERE queue = ? AND owner IS NULL AND available_at IS NULL",
            (queue,),
        ).fetchone()
        (kept,) = self._db.execute(
            "SELECT count(*) FROM messages INDEXED BY kept_back"
            " WHERE queue = ? AND owner IS NULL AND available_at IS NOT NULL",
            (queue,),
        ).fetchone()
        return int(ready) + int(kept)

    def owners(self) -> list[str]:
        return [
            owner for (owner,) in self._db.execute("SELECT DISTINCT owner FROM messages WHERE owner NOT NULL")
        ]

    # --- holding and settling -----------------------------------------------------------------------

    def claim(self, queue: int, owner: str, now: int, room: int) -> list[Row]:
        """Hand the oldest free messages to this holder."""
        self._db.execute(FREE_THE_DUE, (queue, now, room))
        rows = list(map(Row._make, self._db.execute(TAKE, (queue, room))))
        self._db.executemany("UPDATE messages SET owner = ? WHERE id = ?", [(owner, row.id) for row in rows])
        return rows

    def remove(self, claim: Claim) -> bool:
        if not self._db.execute(f"DELETE FROM messages {IF_HELD}", claim).rowcount:
            return False
        self._db.execute("DELETE FROM contents WHERE id = ?", (claim.id,))
        return True

    def requeue(self, claim: Claim, available_at: int | None) -> bool:
        changed = self._db.execute(
            f"UPDATE messages SET {FAILED}, available_at = ? {IF_HELD}", (available_at, *claim)
        )
        return bool(changed.rowcount)

    def move(self, claim: Claim, queue: int, death: bytes) -> bool:
        """Move a message to another queue, with its history and a fresh count of tries."""
        changed = self._db.execute(
            f"UPDATE messages SET owner = NULL, tries = 0, redelivered = 0, queue = ?, death = ? {IF_HELD}",
            (queue, death, *claim),
        )
        return bool(changed.rowcount)

    def release_dead(self, owner: str) -> None:
        """Free what a dead holder held. Whether it had begun is not known, so the try counts."""
        self._db.execute(f"UPDATE messages SET {FAILED} WHERE owner = ?", (owner,))

    def give_back(self, owner: str) -> None:
        """Free what this holder did not finish, as if it had never been handed over (D-11)."""
        # If the file cannot be written now, the next patrol of any process finds a holder that is gone.
        with suppress(sqlite3.Error):
            self.wait_for_others(LEAVING)
            self._db.execute("UPDATE messages SET owner = NULL WHERE owner = ?", (owner,))

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """What distinguishes this very file from another of the same name."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
