"""rich on the stream everything else is printed to, so that a stalled terminal only costs redraws."""

from __future__ import annotations

import io
import sys
from typing import Any, Final, TextIO, cast

from rich.console import Console

from chronicle.telemetry.formats import encode
from chronicle.telemetry.safe_stream import SafeStream

# For a terminal that has no Unicode; rich draws its own lines without it.
PLAIN: Final = str.maketrans(
    {"←": "<-", "→": "->", "·": "-", "×": "x", "…": "...", "│": "|", "‹": "<", "›": ">"}
)


class TextOut(io.TextIOBase):
    """A safe stream as a text file."""

    encoding = "utf-8"  # what the terminal can show; rich asks for it, too

    def __init__(self, sink: SafeStream, encoding: str) -> None:
        self._sink = sink
        self.encoding = encoding

    def write(self, text: str) -> int:
        if text:
            self._sink.write(encode(text) if has_unicode(self.encoding) else self._plain(text))
        return len(text)

    def _plain(self, text: str) -> bytes:
        return text.translate(PLAIN).encode(self.encoding, "replace")

    def isatty(self) -> bool:
        return self._sink.is_terminal


def has_unicode(encoding: str) -> bool:
    """Whether a terminal with this encoding shows arrows and blocks."""
    return encoding.lower().startswith("utf")


def console_on(sink: SafeStream, *, encoding: str | None = None, **options: Any) -> Console:
    """A rich console that writes to this stream and never waits; `encoding` is stderr's, if not given."""
    known = encoding or getattr(sys.__stderr__, "encoding", None) or "utf-8"
    return Console(file=cast(TextIO, TextOut(sink, known)), **options)
