"""Which file a local URL refers to."""

from __future__ import annotations

import os
from pathlib import Path

from chronicle.errors import SettingError


def file_of(url: str) -> tuple[str, Path]:
    """The file as the URL writes it, and where it really is.

    Links are followed, because the lock files are next to the file: two names must not mean two sets of them.
    """
    file = url.partition(":")[2]
    if not file or file.startswith("//") or "\0" in file:
        raise SettingError(
            "a local URL names one file", "write it as local:FILE, for example local:chronicle.db"
        )
    path = Path(os.path.realpath(file))
    if not path.parent.is_dir():
        raise SettingError(f"the folder of {file} does not exist", f"create it first: mkdir -p {path.parent}")
    return file, path
