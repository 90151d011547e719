"""What a shell offers when somebody presses Tab: the words of a choice, and files where files belong.

Rule: nothing is asked, connected to or read for it. click does the rest (docs/running.md#shell-completion).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

# A word that is only the beginning of one, such as `reason=`, is gone on with: no space after it.
NO_SPACE: Final = """
%(complete_func)s_open() {
    %(complete_func)s "$@"
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then
        compopt -o nospace
    fi
    return 0
}

complete -o nosort -F %(complete_func)s_open %(prog_name)s;
"""


class OpenBashComplete(BashComplete):
    """click's script for bash, and after it what click leaves out."""

    source_template = BashComplete.source_template + NO_SPACE


def use_own_scripts() -> None:
    """Let click know our script."""
    add_completion_class(OpenBashComplete)


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders; the shell knows them."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def words(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of the words that begin like this."""
    return [CompletionItem(word) for word in known if word.startswith(incomplete)]
