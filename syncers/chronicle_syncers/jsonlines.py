"""A syncer that appends each message to a file, as one line of JSON.

It returns True when the line is on disk: every write is followed by an fsync, and workers waiting at the
same time share one. Threads and processes can write to the same file. A full or broken disk ends the
process, and the message stays in the queue.

A message that arrives twice is in the file twice: keep the last line of each `actionId` when reading.
Rotate the file by renaming it; compress or delete the old one later, not at the same moment.

    CHRONICLE_JSONL_FILE    the file, created with mode 600 if it does not exist; an existing one must be the
                            user's own, closed to others, and not a link
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from chronicle_syncers._append import AppendFile, open_file
from chronicle_syncers._message import Message, as_json
from chronicle_syncers._settings import required

FILE = "CHRONICLE_JSONL_FILE"


class JsonLines:
    """Appends messages to one file, which stays open as long as the context."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._path = Path(required(environ, FILE, "messages.jsonl"))
        self._file: AppendFile

    def __enter__(self) -> JsonLines:
        self._file = open_file(self._path, FILE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, message: Message) -> bool:
        self._file.append(as_json(message) + b"\n")
        return True


sync = JsonLines
