"""Nouns that agree with their numbers: `1 message`, `2 messages`."""

from __future__ import annotations


def noun(number: int | str, one: str, several: str = "") -> str:
    """The noun for so many; its plural has an s, unless it is given."""
    return one if number == 1 else several or f"{one}s"


def many(number: int | str, one: str, several: str = "") -> str:
    """So many of these."""
    return f"{number} {noun(number, one, several)}"
