"""rich on the stream everything else is printed to, so that a stalled terminal only costs redraws."""

from __future__ import annotations

import io
from typing import Any, TextIO, cast

from rich.console import Console

from chronicle.telemetry.formats import encode
from chronicle.telemetry.safe_stream import SafeStream


class TextOut(io.TextIOBase):
    """A safe stream as a text file."""

    def __init__(self, sink: SafeStream) -> None:
        self._sink = sink

    def write(self, text: str) -> int:
        if text:
            self._sink.write(encode(text))
        return len(text)

    def isatty(self) -> bool:
        return self._sink.is_terminal


def console_on(sink: SafeStream, **options: Any) -> Console:
    """A rich console that writes to this stream and never waits."""
    return Console(file=cast(TextIO, TextOut(sink)), **options)
