"""What a shell offers when somebody presses Tab: the words of a choice, and files where files belong.

Rule: nothing is asked, connected to or read for it. click does the rest (docs/running.md#shell-completion).
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders; the shell knows them."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def words(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of the words that begin like this."""
    return [CompletionItem(word) for word in known if word.startswith(incomplete)]
