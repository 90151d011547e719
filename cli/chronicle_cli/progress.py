"""A counter or a bar at a terminal, for commands that work through many messages; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows `N messages …` while it lasts, with a bar when it is known how many there are.

    What it gives is called with every number of further ones.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # The column is a template: a brace in a queue's name must not count as one.
    shown = escape(doing).replace("{", "{{").replace("}", "}}")
    columns = (
        SpinnerColumn() if total is None else BarColumn(),
        TextColumn(f"{{task.completed:.0f}} messages {shown}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.advance(task, number)
