"""Messages from files, for `replay` and `publish`.

Rule 1: a path is a file, a folder (its `*.json` and `*.jsonl`, by name) or `-`, standard input.
Rule 2: a file is one JSON document or JSON lines; each document or line is a record or a plain message.
        A plain message is delivered with its exact bytes, even if it is not JSON: bad input has its own
        verdict. Whoever wants to send only what is JSON has it checked (`check`); what is in a record was a
        message once, and is not.
Rule 3: JSON lines are read one at a time, however large the file is. The first lines decide: a document
        continues after its first line, JSON lines do not. What is appended to a file while it is read is not
        read (`lines.py`), and what is written meanwhile is none of the files that are read.
Rule 4: a path that cannot be read is reported before the first message.
Rule 5: an encrypted capture is read like any other, and a wrong secret is reported before the first message.
        A capture whose writer was killed is read as far as it goes, with a warning. Where encrypted files are
        expected, a plain one is refused: somebody may have put it there. Standard input may be either.
Rule 6: a key store is never a message: in a folder it is left out, with a word about it, and anywhere else
        it is refused.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import orjson

from chronicle.captures.lines import lines_of
from chronicle.core.body import parse
from chronicle.core.delivery import NOTHING, Delivery
from chronicle.core.encryption import MAX_HEADER, AskSecret, cipher_from_header, decrypt_lines, is_encrypted
from chronicle.core.frozen import frozen
from chronicle.core.json_tags import untag
from chronicle.core.record import from_record, is_record
from chronicle.core.words import line_in
from chronicle.errors import InvalidMessage, MessageError, SettingError

STDIN: Final = "-"
TRANSPORT: Final = "file"
# A record wraps a body that may itself be nested as deep as a body is allowed to.
MAX_DEPTH: Final = 1000
# How a key store begins: a public key, then its private one, bare or in an object; or the pinned sign keys.
# Checking the beginning is cheap, so it is done for every plain message.
HEAD: Final = MAX_HEADER + 1
_KEYS_BEGIN: Final = re.compile(
    rb'\s*\{\s*(?:"signKeys"\s*:\s*\[|"[^"]{0,200}"\s*:\s*(?:\{[^{}]{0,200}"private"|"[\w+/-]{43}=?"))'
)
SIGN_KEYS: Final = "signKeys"  # the entry of a store that is no pair of keys
_KEY: Final = re.compile(r"[A-Za-z0-9_+/-]{43}=?")

Line: TypeAlias = tuple[int, bytes]
Check: TypeAlias = Callable[[Delivery], object]  # raises MessageError


@frozen
class Found:
    """A message and where it was found; `account` is what its record says about how it was handled."""

    delivery: Delivery
    file: str
    line: int
    account: Mapping[str, Any]


@frozen
class FileReader:
    """How files are read: where the secret of an encrypted one comes from, and where warnings go."""

    queue: str  # of plain messages
    stdin: BinaryIO | None = None
    ask: AskSecret | None = None
    tell: Callable[[str], None] = lambda _: None
    encrypted: bool = False  # plain files are refused
    check: Check | None = None  # of plain messages


def read_messages(
    paths: Sequence[str],
    queue: str,
    stdin: BinaryIO | None = None,
    *,
    ask: AskSecret | None = None,
    tell: Callable[[str], None] = lambda _: None,
    encrypted: bool = False,
) -> Iterator[Delivery]:
    """The messages of these paths in order; raises SettingError here for a path without any."""
    reader = FileReader(queue, stdin, ask, tell, encrypted)
    return (found.delivery for found in find_messages(paths, reader))


def find_messages(paths: Sequence[str], reader: FileReader) -> Iterator[Found]:
    """The same, each with where it was found."""
    files = [file for path in paths for file in _chosen(path, reader)]
    if not files:
        raise SettingError("there is nothing to read", "name a file, a folder, or - for standard input")
    for file in files:
        _look_at(file, reader)
    return chain.from_iterable(_read(file, reader) for file in files)


def refuse_to_write(written: str, paths: Sequence[str], option: str) -> None:
    """SettingError if the file that an option is to write is one of those that are read, by any name."""
    try:
        facts = os.stat(written)
    except (OSError, ValueError):
        return  # there is none yet, and what comes is not read: the files of a folder are those it has now
    for file in (file for path in paths for file in _files(path)):
        if _is_file(file, facts):
            raise SettingError(f"{option} {written} is one of the files to be read", "name one that is not")


def _is_file(name: str, facts: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(sys.stdin.fileno()) if name == STDIN else os.stat(name), facts)
    except OSError:
        return False


def once_only(paths: Sequence[str]) -> str | None:
    """What of these can be read only once, in words: standard input, or a pipe under any name."""
    for path in paths:
        if path == STDIN:
            return "standard input"
        if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
            return f"{path}, which is no regular file,"
    return None


def check_plain(paths: Sequence[str], reader: FileReader) -> None:
    """Check the plain messages of all files, but not of standard input; SettingError for the first bad one.

    For whoever would rather find it before the first message is sent.
    """
    silent = replace(reader, tell=lambda _: None)
    for file in (file for path in paths for file in _chosen(path, silent)):
        if file != STDIN and os.path.isfile(file) and not _is_encrypted(file):
            for _ in _read(file, silent):
                pass


def _is_encrypted(name: str) -> bool:
    with open(name, "rb") as file:
        return is_encrypted(file.read(HEAD))


def _files(path: str) -> list[str]:
    if path == STDIN:
        return [path]
    if os.path.isdir(path):
        found = sorted(entry for entry in Path(path).iterdir() if entry.suffix in (".json", ".jsonl"))
        files = [str(entry) for entry in found if entry.is_file()]
        if not files:
            raise SettingError(f"no messages in the folder {path}", "it must contain *.json or *.jsonl files")
    elif os.path.exists(path):
        files = [path]
    else:
        raise SettingError(f"there is no file {path}", "name a file, a folder, or - for standard input")
    for file in files:
        if not os.access(file, os.R_OK):
            raise SettingError(f"{file} cannot be read", "check its permissions")
    return files


def _chosen(path: str, reader: FileReader) -> list[str]:
    """The files of a path, without a folder's key stores."""
    files = _files(path)
    if path == STDIN or not os.path.isdir(path):
        return files
    stores = [file for file in files if _is_store(file, reader)]
    for store in stores:
        reader.tell(f"{store} is a key store, not a message: it is left out")
    if stores == files:
        raise SettingError(f"no messages in the folder {path}", "it must contain *.json or *.jsonl files")
    return [file for file in files if file not in stores]


def _is_store(name: str, reader: FileReader) -> bool:
    """Whether this file is a key store, locked or not."""
    head, content = _beginning(name)
    if reader.ask is None or not is_encrypted(head):
        return _is_key_store(content)
    with open(name, "rb") as file:
        first = next(decrypt_lines(islice(file, 2), reader.ask, name, lambda _: None), None)
    return first is not None and _is_key_store(first[1])


def _beginning(name: str) -> tuple[bytes, bytes]:
    """How a file begins; and all of it, if it could be a key store."""
    try:
        with open(name, "rb") as file:
            head = file.read(HEAD)
            return head, head + file.read() if _KEYS_BEGIN.match(head) else b""
    except OSError as error:
        raise SettingError(f"{name} cannot be read: {error.strerror}") from None


def _look_at(name: str, reader: FileReader) -> None:
    """Refuse a key store; check that an encrypted file can be decrypted.

    The secret is prompted for here, before the run takes over the terminal.
    """
    if name == STDIN or not os.path.isfile(name):
        return
    head, content = _beginning(name)
    _refuse_keys(content, name)
    if not is_encrypted(head):
        _refuse_plain(name, reader)
    elif reader.ask is not None:
        cipher_from_header(head.partition(b"\n")[0], reader.ask, name)


def _refuse_plain(name: str, reader: FileReader) -> None:
    """SettingError if this file, which is not encrypted, ought to be."""
    if reader.encrypted and name != STDIN:
        raise SettingError(
            f"{name} is not encrypted, and it is expected to be: a passphrase or key is set",
            "if it is meant to be plain, add --plain or set CHRONICLE_ENCRYPT=false",
        )


def _refuse_keys(content: bytes, name: str) -> None:
    """SettingError for a key store."""
    if _is_key_store(content):
        raise SettingError(f"{name} is a key store, not a message", "leave it out")


def _is_key_store(content: bytes) -> bool:
    if not _KEYS_BEGIN.match(content):
        return False
    try:
        store = parse(content, len(content), MAX_DEPTH)
    except InvalidMessage:
        return False
    if not isinstance(store, dict):
        return False
    pairs = [value for name, value in store.items() if name != SIGN_KEYS]
    return bool(pairs) and all(map(_is_key, pairs))


def _is_key(value: object) -> bool:
    if isinstance(value, dict):
        return "private" in value
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def _read(name: str, reader: FileReader) -> Iterator[Found]:
    try:
        if name == STDIN:
            yield from _split(reader.stdin or sys.stdin.buffer, name, reader)
            return
        with open(name, "rb") as file:
            yield from _split(file, name, reader)
    except OSError as error:
        raise SettingError(f"{name} cannot be read: {error.strerror}") from None


def _split(file: BinaryIO, name: str, reader: FileReader) -> Iterator[Found]:
    """One message for a document, one per line for JSON lines; blank lines are skipped."""
    there = lines_of(file)
    lines = enumerate(there, start=1)
    head: list[Line] = []
    filled: list[Line] = []
    for line in lines:
        head.append(line)
        if not filled and is_encrypted(line[1]):
            yield from _decrypt(chain((line[1],), there), name, reader)
            return
        if line[1].strip():
            filled.append(line)
            if len(filled) == 2:
                break
    _refuse_plain(name, reader)
    if not filled:
        return
    if len(filled) == 1 or _begin_document(filled[0][1], filled[1][1]):
        document = b"".join(content for _, content in chain(head, lines))
        yield _found(document, name, filled[0][0], reader)
        return
    captured = False  # what came before was a record
    for number, content in chain(head, lines):
        if captured and not content.endswith(b"\n") and not _is_json(content):
            reader.tell(f"{name}, line {number} is incomplete: its writer was stopped; the rest is read")
        elif content.strip():
            found = _found(content.rstrip(b"\r\n"), name, number, reader)
            captured = found.delivery.transport != TRANSPORT
            yield found


def _decrypt(lines: Iterator[bytes], name: str, reader: FileReader) -> Iterator[Found]:
    if reader.ask is None:
        raise SettingError(f"{name} is encrypted, and there is no secret to decrypt it with")
    for number, content in decrypt_lines(lines, reader.ask, name, reader.tell):
        yield _found(content, name, number, reader)


def _begin_document(first: bytes, second: bytes) -> bool:
    """Whether these two lines begin one document.

    The first must open something and not close it. A truncated first line of JSON lines does so, too; but
    after most truncations no document could continue with a line that is an object by itself.
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


def _found(content: bytes, name: str, number: int, reader: FileReader) -> Found:
    record = _record(content)
    if record is None:
        _refuse_keys(content, name)
        origin = {"file": name, "line": number}
        plain = Delivery(content, queue=reader.queue, transport=TRANSPORT, origin=origin)
        if reader.check is not None:
            check_message(plain, reader.check)
        return Found(plain, name, number, NOTHING)
    try:
        account = untag(record.get("chronicle", {}))
        return Found(from_record(record), name, number, account if isinstance(account, dict) else NOTHING)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "it is nested too deeply"
        raise SettingError(
            f"{name}, line {number}: a damaged record: {why}", "remove the line, or capture again"
        ) from None


def check_message(message: Delivery, check: Check) -> None:
    """SettingError that names file and line if it is not what it must be."""
    try:
        check(message)
    except MessageError as error:
        name, line = message.origin["file"], message.origin["line"] + _lines_before_fault(message.body)
        raise SettingError(
            f"{line_in(name, line)}: {error}",
            "correct it; to send it as it stands, add --schema raw",
        ) from None


def _lines_before_fault(content: bytes) -> int:
    """In which line of a document it stops being JSON, counted from 0."""
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError as error:
        return error.lineno - 1
    return 0


def _record(content: bytes) -> dict[str, Any] | None:
    if b'"base64"' not in content:
        return None
    try:
        value = parse(content, len(content), MAX_DEPTH)
    except InvalidMessage:
        return None
    return value if is_record(value) else None
