"""Words that several errors and lines share: `1 message`, `2 messages`; `orders.jsonl, line 3`."""

from __future__ import annotations


def noun(number: int | str, one: str, several: str = "") -> str:
    """The noun for so many; its plural has an s, unless it is given."""
    return one if number == 1 else several or f"{one}s"


def many(number: int | str, one: str, several: str = "") -> str:
    """So many of these."""
    return f"{number} {noun(number, one, several)}"


def line_in(file: str, line: int) -> str:
    """A place in a file; `-` is standard input."""
    return f"{'standard input' if file == '-' else file}, line {line}"
