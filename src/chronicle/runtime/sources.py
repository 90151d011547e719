"""Messages from files, for `replay` and `publish`.

Rule 1: a path is a file, a folder (its `*.json` and `*.jsonl`, by name) or `-`, standard input.
Rule 2: a file is one JSON document or JSON lines; each document or line is a record or a plain message.
        A plain message is delivered with its exact bytes, and one that is not JSON is delivered too: bad
        input has a verdict of its own.
Rule 3: JSON lines are read one at a time, however large the file is. The first lines tell: a document goes
        on where its first line ends, JSON lines do not.
Rule 4: a path that cannot be read is found before the first message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from chronicle.core.body import parse
from chronicle.core.delivery import Delivery
from chronicle.core.record import from_record, is_record
from chronicle.errors import InvalidMessage, SettingError

STDIN: Final = "-"
TRANSPORT: Final = "file"
# A record wraps a body that may itself be nested as deep as a body is allowed to.
MAX_DEPTH: Final = 1000

Line: TypeAlias = tuple[int, bytes]


def read_messages(paths: Sequence[str], queue: str, stdin: BinaryIO | None = None) -> Iterator[Delivery]:
    """The messages of these paths in order; raises SettingError here for a path without any."""
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise SettingError("there is nothing to read", "name a file, a folder, or - for standard input")
    return chain.from_iterable(_read(file, queue, stdin) for file in files)


def _files(path: str) -> list[str]:
    if path == STDIN:
        return [path]
    if os.path.isdir(path):
        found = sorted(entry for entry in Path(path).iterdir() if entry.suffix in (".json", ".jsonl"))
        files = [str(entry) for entry in found if entry.is_file()]
        if not files:
            raise SettingError(f"no messages in the folder {path}", "messages are files *.json or *.jsonl")
    elif os.path.exists(path):
        files = [path]
    else:
        raise SettingError(f"there is no file {path}", "name a file, a folder, or - for standard input")
    for file in files:
        if not os.access(file, os.R_OK):
            raise SettingError(f"{file} cannot be read", "check its permissions")
    return files


def _read(name: str, queue: str, stdin: BinaryIO | None) -> Iterator[Delivery]:
    try:
        if name == STDIN:
            yield from _split(stdin or sys.stdin.buffer, name, queue)
            return
        with open(name, "rb") as file:
            yield from _split(file, name, queue)
    except OSError as error:
        raise SettingError(f"{name} cannot be read: {error.strerror}") from None


def _split(file: BinaryIO, name: str, queue: str) -> Iterator[Delivery]:
    """One delivery for a document, one per line for JSON lines; blank lines are skipped."""
    lines = enumerate(file, start=1)
    head: list[Line] = []
    filled: list[Line] = []
    for line in lines:
        head.append(line)
        if line[1].strip():
            filled.append(line)
            if len(filled) == 2:
                break
    if not filled:
        return
    if len(filled) == 1 or _begin_document(filled[0][1], filled[1][1]):
        document = b"".join(content for _, content in chain(head, lines))
        yield _delivery(document, name, filled[0][0], queue)
        return
    for number, content in chain(head, lines):
        if content.strip():
            yield _delivery(content.rstrip(b"\r\n"), name, number, queue)


def _begin_document(first: bytes, second: bytes) -> bool:
    """Whether these two lines begin one document.

    The first must open something and not close it. So does the first of JSON lines when it was cut off;
    but after most cuts no document could go on with a line that is an object by itself.
    """
    if first.lstrip()[:1] not in (b"{", b"[") or _is_json(first):
        return False
    return first.rstrip().endswith((b":", b"[")) or not _is_json(second, b"{")


def _is_json(line: bytes, opening: bytes = b"") -> bool:
    try:
        parse(line, len(line), MAX_DEPTH)
    except InvalidMessage:
        return False
    return line.lstrip().startswith(opening)


def _delivery(content: bytes, name: str, number: int, queue: str) -> Delivery:
    record = _record(content)
    if record is None:
        return Delivery(content, queue=queue, transport=TRANSPORT, origin={"file": name, "line": number})
    try:
        return from_record(record)
    except ValueError as error:
        raise SettingError(
            f"{name}, line {number}: a damaged record: {error}", "take the line out, or capture again"
        ) from None


def _record(content: bytes) -> dict[str, Any] | None:
    if b'"base64"' not in content:
        return None
    try:
        value = parse(content, len(content), MAX_DEPTH)
    except InvalidMessage:
        return None
    return value if is_record(value) else None
