"""Which options stand on the command line, and which of them must not.

Rule: an option that would do nothing is refused when it was typed. As a variable it may stand in the `.env`
of a whole project, for the commands and brokers it means something to.
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
    """SettingError for the first of these options that stands on the command line."""
    for param in ctx.command.params:
        if param.name in names and typed(ctx, param.name):
            flags = [*param.opts, *param.secondary_opts]
            given = flags[-1] if ctx.params[param.name] is False else flags[0]
            raise SettingError(f"{given} {why}", "leave it out")


def refuse_useless(ctx: click.Context, broker: Broker) -> None:
    """SettingError for an option on the command line that this broker has no use for."""
    for name, why in broker.refuses.items():
        refuse_typed(ctx, (name,), f"has no effect on {broker.title}: {why}")
