"""A syncer that appends each message to a file, as one row of CSV.

It is as durable as the JSON lines syncer: True means that the row is on disk. A new file gets a header
row; a file with a different header is refused at start. A row is always one line (line breaks inside a value
become spaces), and text that a spreadsheet would run as a formula is prefixed with an apostrophe. A message
that arrives twice has two rows with the same `action_id`. One that is still sealed is dead-lettered.

    CHRONICLE_CSV_FILE      the file, created with mode 0600 if it does not exist
    CHRONICLE_CSV_FIELDS    the columns, `column=path.to.value&column=path…`, percent-encoded where
                            necessary; DEFAULT_FIELDS if not set
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from chronicle import DeadLetter
from chronicle.errors import SettingError
from chronicle_syncers._append import AppendFile, UnusableFileError
from chronicle_syncers._message import Message, as_json, as_text, is_sealed, lookup
from chronicle_syncers._settings import required

FILE: Final = "CHRONICLE_CSV_FILE"
FIELDS: Final = "CHRONICLE_CSV_FIELDS"

DEFAULT_FIELDS: Final = "&".join(
    (
        "action_id=actionId",
        "schema=schema",
        "action_type=action.actionType",
        "event_type=eventType",
        "created_at=action.createdAt",
        "campaign=campaign.name",
        "org=org.name",
        "email=contact.email",
        "first_name=contact.firstName",
        "last_name=contact.lastName",
        "country=contact.country",
        "postcode=contact.postcode",
        "opt_in=privacy.optIn",
    )
)

# Full-width signs count too: some spreadsheets read them as the plain ones.
FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Fields: TypeAlias = tuple[tuple[str, str], ...]


class CsvFile:
    """Appends rows to one file, which stays open as long as the context."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._path = Path(required(environ, FILE, "actions.csv"))
        self._fields = parse_fields(environ.get(FIELDS, "").strip() or DEFAULT_FIELDS)
        self._file: AppendFile

    def __enter__(self) -> CsvFile:
        try:
            self._file = AppendFile(self._path, row(column for column, _ in self._fields), end_row)
        except (OSError, UnusableFileError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingError(
                f"the file of {FILE} cannot be used: {why}",
                f"name another file, or other columns in {FIELDS}",
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, message: Message) -> bool:
        as_json(message)  # refuses what cannot be written, before a row is made of it
        if is_sealed(message):
            raise DeadLetter("its personal data is sealed and a row cannot keep it; run with --keys")
        self._file.append(row(lookup(message, path) for _, path in self._fields))
        return True


def parse_fields(text: str) -> Fields:
    """The columns of a field map, in order."""
    try:
        fields = tuple(parse_qsl(text, strict_parsing=True, keep_blank_values=True))
    except ValueError:
        fields = ()
    columns = [column for column, _ in fields]
    if not fields or not all(column and path for column, path in fields):
        raise SettingError(
            f"{FIELDS} is not a field map", f"for example {FIELDS}=email=contact.email&id=actionId"
        )
    if len(set(columns)) < len(columns):
        raise SettingError(f"{FIELDS} names a column twice", "give every column a name of its own")
    return fields


def row(values: Iterable[Any]) -> bytes:
    """One line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([cell(value) for value in values])
    return line.getvalue().encode()


def cell(value: Any) -> str:
    """A value as a cell: one line of text that no spreadsheet would run."""
    text = as_text(value) or ""
    flat = " ".join(text.replace("\0", "").splitlines())
    is_formula = flat.lstrip().startswith(FORMULA) or text.startswith(("\t", "\r"))
    return "'" + flat if is_formula and isinstance(value, str) else flat


def end_row(half: bytes) -> bytes:
    """Terminates a partial row: an open quote would swallow the next one."""
    return b'"\n' if half.count(b'"') % 2 else b"\n"


sync = CsvFile
