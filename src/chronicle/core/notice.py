"""What a transport reports for the log: a refused copy, an outage, lines of its client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the log; `level` is one of `logging`'s, `facts` hold ids and sizes and nothing else.

    Notices are counted by their event; a fact `count` says that this one stands for so many. What is said at
    every start, and is no trouble, is not `counted`.
    """

    event: str
    level: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    counted: bool = True
