"""What a transport reports for the log: a refused copy, an outage, lines of its client library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from chronicle.core.delivery import Delivery
from chronicle.core.frozen import frozen


@frozen
class Notice:
    """One line for the log; `level` is one of `logging`'s, `facts` hold ids and sizes and nothing else.

    Notices are counted by their event; a fact `count` says that this one stands for so many. What is said at
    every start, and is no trouble, is not `counted`. `about` is the delivery it is about, if it is one.
    """

    event: str
    level: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    about: Delivery | None = None
    counted: bool = True
