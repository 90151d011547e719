"""The lines of a file that messages are read from.

Rule: a regular file is read as far as it went when it was opened. What is appended meanwhile, perhaps because
      of these very messages, is for the next reader: whoever followed it might never come to an end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import BinaryIO


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines from here on, each with its newline."""
    left = _left_in(file)
    if left is None:
        yield from file
        return
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        yield line


def _left_in(file: BinaryIO) -> int | None:
    """How many bytes there are from here on; None for a pipe, of which nobody knows."""
    try:
        facts = os.fstat(file.fileno())
    except OSError:  # it is in memory
        return None
    return facts.st_size - file.tell() if stat.S_ISREG(facts.st_mode) else None
