"""A syncer that appends each message to a file, as one line of JSON.

It answers True when the line is on disk: every line is followed by an fsync, which workers that wait at
the same time share. Threads and processes may write to the same file. A full disk or a broken one ends
the process, and the message stays in the queue.

A message may come twice, and then it is in the file twice: keep the last line of each `actionId` when
reading. The file may be rotated by renaming it; compress or delete the old one later, not at once.

    CHRONICLE_JSONL_FILE    the file, made with mode 0600 if it is not there
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from chronicle.errors import SettingError
from chronicle_syncers._append import AppendFile, UnusableFileError
from chronicle_syncers._message import Message, as_json
from chronicle_syncers._settings import required

FILE = "CHRONICLE_JSONL_FILE"


class JsonLines:
    """Appends messages to one file, which is open while the context is."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._path = Path(required(environ, FILE, "messages.jsonl"))
        self._file: AppendFile

    def __enter__(self) -> JsonLines:
        try:
            self._file = AppendFile(self._path)
        except (OSError, UnusableFileError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise SettingError(f"the file of {FILE} cannot be used: {why}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, message: Message) -> bool:
        self._file.append(as_json(message) + b"\n")
        return True


sync = JsonLines
