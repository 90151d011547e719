"""Which options were given on the command line, and which of them must not be.

Rule: an option that would have no effect is refused on the command line. As a variable it is allowed: it may
be in a project's `.env` for the commands and brokers that use it.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.core import ParameterSource

from chronicle.errors import SettingError
from chronicle.transports.broker import Broker


def typed(ctx: click.Context, name: str) -> bool:
    """Whether a value came from the command line, as opposed to the environment."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_typed(ctx: click.Context, names: Iterable[str], why: str) -> None:
    """SettingError for the first of these options that was given on the command line."""
    for param in ctx.command.params:
        if param.name in names and typed(ctx, param.name):
            flags = [*param.opts, *param.secondary_opts]
            given = flags[-1] if ctx.params[param.name] is False else flags[0]
            raise SettingError(f"{given} {why}", "leave it out")


def refuse_useless(ctx: click.Context, broker: Broker) -> None:
    """SettingError for an option on the command line that has no effect on this broker."""
    for name, why in broker.refuses.items():
        refuse_typed(ctx, (name,), f"has no effect on {broker.title}: {why}")
