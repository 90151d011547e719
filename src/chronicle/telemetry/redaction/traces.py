"""Tracebacks that are safe to show: code and places, no values.

Rule 1: if the message is not known, only chronicle's own errors keep their text; of an OSError the words of
        the system for its number are shown. Python quotes values in the texts of its own errors.
Rule 2: a person's error stands alone: neither the frames that led to their code are shown, nor an error of
        chronicle's own that was being handled meanwhile, which is reported by itself.
Rule 3: what is shown of the code was written before any message came: names and lines of files on disk, and
        classes that a module holds. They are masked like every text.
"""

from __future__ import annotations

import errno
import linecache
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, TypeAlias, TypeGuard

from chronicle.errors import Ask, ChronicleError
from chronicle.telemetry.redaction.personal import WITHHELD, Mask
from chronicle.telemetry.redaction.secrets import one_line

Place: TypeAlias = tuple[CodeType, int]  # a function and a line in it

_HOME: Final = str(Path(__file__).resolve().parents[2]) + "/"
_UVLOOP: Final = "uvloop/"  # of which there are no files to show: it is not Python
_LOOPS: Final = (str(Path(os.__file__).parent / "asyncio") + "/", _UVLOOP)
_FIRST_FRAMES: Final = 4
_LAST_FRAMES: Final = 12
_MOST_ERRORS: Final = 6
_LONGEST: Final = 8_000
_LONGEST_LINE: Final = 160
_MADE_AT_RUN_TIME: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def trace_of(error: BaseException, message: Any) -> str:
    """The traceback of this error, with every text masked; the frames are the syncer's, not chronicle's."""
    told = _Told(message)
    errors = list(_chain(error, set()))[-_MOST_ERRORS:]
    trace = "\n".join(f"{joint}\n{told.block(each)}".lstrip("\n") for joint, each in errors)
    return trace if len(trace) <= _LONGEST else "…" + trace[-_LONGEST:]


def stack_of(places: Iterable[Place]) -> str:
    """Where a syncer is, the innermost call last: files, lines and functions, and nothing else."""
    found = list(places)
    ours = [number for number, (code, _) in enumerate(found) if _is_machinery(code.co_filename)]
    below = found[ours[-1] + 1 :] if ours else found
    masked = Mask(None)
    lines = [
        f'  File "{one_line(code.co_filename)}", line {line}, in {masked(code.co_name)}'
        if _is_source(code.co_filename)
        else "  in code made at run time"
        for code, line in below or found
    ]
    left_out = len(lines) - _FIRST_FRAMES - _LAST_FRAMES
    if left_out > 0:
        lines[_FIRST_FRAMES:-_LAST_FRAMES] = [f"  … {left_out} more …"]
    return "\n".join(lines)


def reason_of(error: BaseException, message: Any) -> str:
    """The name of an error and what may be shown of its text."""
    return _Told(message).reason(error)


def words_of(error: BaseException, message: Any) -> str:
    """What may be shown of an error's text."""
    return _Told(message).words(error)


def name_of(kind: type) -> str:
    """The name of a class as its author wrote it; of one named at run time, that of a base class."""
    return one_line(next(base.__name__ for base in kind.__mro__ if _was_written(base)), _LONGEST_LINE)


class _Told:
    """What may be told of errors about one message."""

    def __init__(self, message: Any) -> None:
        self._mask = Mask(message)
        self._unknown = message is None
        # Code is looked through even if the message cannot be.
        self._of_code = self._mask if self._mask.can_search else Mask(None)

    def reason(self, error: BaseException) -> str:
        kind = type(error)
        # A name made at run time may be a person's; it can be looked through if the message is known.
        name = name_of(kind) if self._unknown or not self._mask.can_search else self._mask(kind.__name__)
        words = self.words(error)
        return f"{name}: {words}" if words else name

    def words(self, error: BaseException) -> str:
        try:
            text = str(error)
            if not self._unknown or _is_ours(error):
                return self._mask(text)
            if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
                return os.strerror(error.errno)
        except Exception:  # not even its text can be had
            return WITHHELD
        return WITHHELD if text else ""

    def block(self, error: BaseException) -> str:
        frames = list(walk_tb(their_part(error.__traceback__)))
        frames = [(frame, line) for frame, line in frames if _is_theirs(frame.f_code.co_filename)] or frames
        left_out = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
        lines = [self._frame(frame, line) for frame, line in frames[:_FIRST_FRAMES]]
        if left_out > 0:
            lines.append(f"  … {left_out} more …")
        lines += [self._frame(frame, line) for frame, line in frames[_FIRST_FRAMES:][-_LAST_FRAMES:]]
        if isinstance(error, SyntaxError) and _is_source(error.filename) and isinstance(error.lineno, int):
            lines.append(self._place(error.filename, error.lineno))
        return "\n".join([*lines, self.reason(error)])

    def _frame(self, frame: FrameType, line: int) -> str:
        code = frame.f_code
        if not _is_source(code.co_filename) and frame.f_globals.get("__file__") != code.co_filename:
            return "  in code made at run time"
        return self._place(code.co_filename, line, f", in {self._of_code(code.co_name)}")

    def _place(self, file: str, line: int, name: str = "") -> str:
        place = f'  File "{one_line(file)}", line {line}{name}'
        source = linecache.getline(file, line).strip()
        return f"{place}\n    {self._of_code(source, _LONGEST_LINE)}" if source else place


def _is_ours(error: BaseException) -> bool:
    """Whether chronicle worded it; an Ask is worded by a syncer."""
    return type(error).__module__ == ChronicleError.__module__ and not isinstance(error, Ask)


def _was_written(kind: type) -> bool:
    """Whether somebody wrote its name into a program: in C, inside a function, or in a module."""
    if not kind.__flags__ & _MADE_AT_RUN_TIME or "<locals>" in kind.__qualname__:
        return True
    found: Any = sys.modules.get(str(kind.__module__))
    for part in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is kind


def _is_source(file: object) -> TypeGuard[str]:
    """Whether it is a program on disk; code made at run time may name any file, also one with passwords."""
    return isinstance(file, str) and file.endswith(".py") and os.path.isfile(file)


def their_part(trace: TracebackType | None) -> TracebackType | None:
    """What is left of a traceback without chronicle's way to the first foreign code, and the event loop's."""
    begin = at = trace
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        at = at.tb_next
        if _is_machinery(file):
            begin = at
        elif not file.startswith(_LOOPS):
            break
    return begin or trace


def _is_theirs(file: str) -> bool:
    return not file.startswith(_UVLOOP) and not _is_machinery(file)


def _is_machinery(file: str) -> bool:
    return file.startswith((_HOME, "<frozen importlib")) or "/importlib/" in file


def _chain(error: BaseException, seen: set[int]) -> Iterator[tuple[str, BaseException]]:
    """The error with what led to it, oldest first, and the members of a group after their group."""
    seen.add(id(error))
    before, joint = error.__cause__, "which was the cause of:"
    if before is None and not error.__suppress_context__:
        before, joint = error.__context__, "while it was handled:"
        if before is not None and _is_ours(before) and not _is_ours(error):
            before = None
    if before is not None and id(before) not in seen and len(seen) < 50:
        yield from _chain(before, seen)
    else:
        joint = ""
    yield joint, error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:_MOST_ERRORS]:
            if id(member) not in seen:
                yield "of which one is:", member
