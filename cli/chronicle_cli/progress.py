"""A counter or a bar at a terminal, for commands that work through many messages; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chronicle_cli import report


@contextmanager
def progress(doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Shows `N messages …` while it lasts, with a bar when it is known how many there are.

    What it gives is called with every number of further ones.
    """
    sink = report.stderr()
    if not sink.is_terminal:
        yield lambda _: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from chronicle_cli.terminal import console_on

    # The column is a template: a brace in a queue's name must not count as one.
    shown = escape(doing).replace("{", "{{").replace("}", "}}")
    columns = (
        SpinnerColumn() if total is None else BarColumn(),
        TextColumn(f"{{task.completed:.0f}} messages {shown}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console_on(sink), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.advance(task, number)
