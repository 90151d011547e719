"""Tracebacks that are safe to show: code and places, no values.

Rule: if the message is not known, only errors worded by Python or by chronicle itself keep their text.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from chronicle.errors import Ask, ChronicleError
from chronicle.telemetry.redaction.personal import WITHHELD, mask
from chronicle.telemetry.redaction.secrets import cap, clean, redact

_HOME: Final = str(Path(__file__).resolve().parents[2]) + "/"
_FIRST_FRAMES: Final = 4
_LAST_FRAMES: Final = 12
_MOST_ERRORS: Final = 6
_LONGEST: Final = 8_000
_WORDED_BY_PYTHON: Final = (
    OSError,
    ImportError,
    NameError,
    AttributeError,
    SyntaxError,
    MemoryError,
    RecursionError,
)


def trace_of(error: BaseException, message: Any) -> str:
    """The traceback of this error, with every text masked; the frames are the syncer's, not chronicle's."""
    errors = list(_chain(error, set()))
    blocks = [f"{joint}\n{_block(each, message)}".lstrip("\n") for joint, each in errors[-_MOST_ERRORS:]]
    trace = "\n".join(blocks)
    return trace if len(trace) <= _LONGEST else "…" + trace[-_LONGEST:]


def reason_of(error: BaseException, message: Any) -> str:
    """The name of an error and what may be shown of its text."""
    name = clean(type(error).__name__)
    try:
        text = str(error)
    except Exception:
        text = WITHHELD
    if message is None and text and not _speaks_for_itself(error):
        text = WITHHELD
    text = mask(text, message)
    return f"{name}: {text}" if text else name


def _speaks_for_itself(error: BaseException) -> bool:
    if isinstance(error, ChronicleError):
        return not isinstance(error, Ask)
    # Subclasses from elsewhere have their own texts: requests puts whole URLs into an OSError.
    return isinstance(error, _WORDED_BY_PYTHON) and type(error).__module__ == "builtins"


def _chain(error: BaseException, seen: set[int]) -> Iterator[tuple[str, BaseException]]:
    """The error with what led to it, oldest first, and the members of a group after their group."""
    seen.add(id(error))
    before, joint = error.__cause__, "which was the cause of:"
    if before is None and not error.__suppress_context__:
        before, joint = error.__context__, "while it was handled:"
    if before is not None and id(before) not in seen and len(seen) < 50:
        yield from _chain(before, seen)
    else:
        joint = ""
    yield joint, error
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions[:_MOST_ERRORS]:
            if id(member) not in seen:
                yield "of which one is:", member


def _block(error: BaseException, message: Any) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(_HOME)]
    lines = [_frame(frame) for frame in foreign or frames]
    if len(lines) > _FIRST_FRAMES + _LAST_FRAMES:
        left_out = len(lines) - _FIRST_FRAMES - _LAST_FRAMES
        lines[_FIRST_FRAMES:-_LAST_FRAMES] = [f"  … {left_out} more …"]
    return "\n".join([*lines, reason_of(error, message)])


def _frame(frame: traceback.FrameSummary) -> str:
    place = f'  File "{clean(frame.filename)}", line {frame.lineno}, in {clean(frame.name)}'
    return f"{place}\n    {cap(clean(redact(frame.line)), 160)}" if frame.line else place
