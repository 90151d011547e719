"""Commands whose help groups options under headings, each with its variable, and ends with examples."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

import click

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Decorator: TypeAlias = Callable[[AnyFunction], AnyFunction]


# What an option takes, by its metavar, where a shell should offer files; a syncer may be in one.
NAMES_FILES: Final = frozenset(("FILE", "FOLDER", "MODULE:NAME"))


class Group(StrEnum):
    """The headings, in the order the help shows them."""

    WHERE = "Where"
    BROKER = "Broker"
    WORK = "Work"
    OUTCOME = "Outcome"
    LIMITS = "Limits"
    TOPOLOGY = "Topology"
    BOUNDS = "Bounds"
    LIFECYCLE = "Lifecycle"
    OUTPUT = "Output"


class GroupedOption(click.Option):
    """An option under a heading."""

    def __init__(self, *args: Any, group: Group, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class Command(click.Command):
    """A command with headings and examples in its help."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*Group, "Options")}
        for param in self.get_params(ctx):
            # An argument is in the usage line and is explained in the text above.
            row = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if row is not None:
                rows[param.group if isinstance(param, GroupedOption) else "Options"].append(row)
        for heading, found in rows.items():
            if found:
                with formatter.section(heading):
                    formatter.write_dl(found)

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)


def write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    """The examples unwrapped, so that they can be copied."""
    if examples:
        with formatter.section("EXAMPLES"):
            for line in examples.strip().splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n" if line.strip() else "\n")


def option(group: Group, *flags: str, **attributes: Any) -> Decorator[Any]:
    """An option under a heading, with its variable and its default in the help."""
    # Imported here: the top-level help has no such option and should not pay for it.
    from chronicle_cli.params import TRUTH

    attributes.setdefault("show_default", attributes.get("default") is not None)
    if attributes.get("is_flag") or any("/" in flag for flag in flags):
        attributes.setdefault("type", TRUTH)
    attributes.setdefault("cls", GroupedOption)
    if attributes.get("metavar") in NAMES_FILES:
        from chronicle_cli.completion import files, folders

        attributes["shell_complete"] = folders if attributes["metavar"] == "FOLDER" else files
    return click.option(*flags, group=group, show_envvar=True, **attributes)


def stack(*decorators: Decorator[Any]) -> Decorator[Any]:
    """Several options as one decorator, in the order in which the help shows them."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
