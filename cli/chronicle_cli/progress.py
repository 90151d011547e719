"""A counter or a progress bar in a terminal, for commands that handle many messages; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chronicle_cli import report


@contextmanager
def progress(doing: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show `N messages …` meanwhile, with a bar if the total is known.

    Yields a function to call with the number of further messages.
    """
    sink = report.stderr()
    if not sink.is_terminal:
        yield lambda _: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from chronicle_cli.terminal import console_on

    # The column is a template: braces in a queue's name must be escaped.
    shown = escape(doing).replace("{", "{{").replace("}", "}}")
    columns = (
        SpinnerColumn() if total is None else BarColumn(),
        TextColumn(f"{{task.completed:.0f}} messages {shown}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console_on(sink), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.advance(task, number)
