"""A syncer that appends each message to a file, as one row of CSV.

It is as durable as the JSON lines syncer: True means that the row is on disk. A new file gets a header
row; a file with a different header is refused at start. A row is always one line (line breaks inside a value
become spaces), and what a spreadsheet would run as a formula is prefixed with an apostrophe, also after a
semicolon or a tab inside a value, where a spreadsheet may begin a new cell. A message
that arrives twice has two rows with the same `action_id`. One that is still sealed is dead-lettered.

    CHRONICLE_CSV_FILE      the file, created with mode 600 if it does not exist; an existing one must be the
                            user's own, closed to others, and not a link
    CHRONICLE_CSV_FIELDS    the columns, `column=path.to.value&column=path…`, percent-encoded where
                            necessary; DEFAULT_FIELDS if not set
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from chronicle import DeadLetter
from chronicle.errors import SettingError
from chronicle_syncers._append import AppendFile, open_file
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

# What makes a cell a formula. Full-width signs count too: some spreadsheets read them as the plain ones.
FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
# Where the list separator is a semicolon, or the file is opened as tab-separated, a spreadsheet begins a new
# cell inside ours, and quotes do not stop it.
SEPARATORS: Final = (";", "\t")
_GAP: Final = re.compile(r'[\s";]+')  # what may be between two cells; one match for a run keeps it linear

Fields: TypeAlias = tuple[tuple[str, str], ...]


class CsvFile:
    """Appends rows to one file, which stays open as long as the context."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._path = Path(required(environ, FILE, "actions.csv"))
        self._fields = parse_fields(environ.get(FIELDS, "").strip() or DEFAULT_FIELDS)
        self._file: AppendFile

    def __enter__(self) -> CsvFile:
        self._file = open_file(self._path, FILE, row(column for column, _ in self._fields), end_row)
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
    """A value as a cell: one line of text that no spreadsheet would run, wherever it begins a cell."""
    text = as_text(value) or ""
    flat = " ".join(text.replace("\0", "").splitlines())
    if isinstance(value, int | float):
        return flat  # a minus sign is a number's own
    safe = _GAP.sub(_defused, flat)
    is_formula = flat.lstrip().startswith(FORMULA) or text.startswith(("\t", "\r"))
    return "'" + safe if is_formula else safe


def _defused(gap: re.Match[str]) -> str:
    """The gap, with an apostrophe after its last separator if a formula follows."""
    run = gap[0]
    cut = max(map(run.rfind, SEPARATORS)) + 1
    begins_formula = cut and gap.string.startswith(FORMULA, gap.end())
    return f"{run[:cut]}'{run[cut:]}" if begins_formula else run


def end_row(half: bytes) -> bytes:
    """Terminates a partial row: an open quote would swallow the next one."""
    return b'"\n' if half.count(b'"') % 2 else b"\n"


sync = CsvFile
