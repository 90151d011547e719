"""The options that brokers have of their own: flags and variables made from their records.

Rule 1: an option is on the commands its record names, once: brokers that use the same name share the flag,
        and its help says what it means to each.
Rule 2: what was chosen goes to the transport; what was not is left out, and the transport has its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

from chronicle.errors import SettingError
from chronicle.transports.broker import Broker, BrokerOption, OptionKind
from chronicle.transports.catalog import brokers
from chronicle_cli.given import refuse_typed
from chronicle_cli.help import Decorator, Group, GroupedOption, option, stack
from chronicle_cli.params import DURATION, POSITIVE, Word
from chronicle_cli.variables import variable

Owned = tuple[Broker, BrokerOption]

CHOSEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class BrokerFlag(GroupedOption):
    """A flag that some brokers understand: `owners` says which, and how each describes it."""

    def __init__(self, *args: Any, owners: Sequence[Owned], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.owners = owners

    def described_by(self, broker: Broker) -> BrokerOption | None:
        return next((one for owner, one in self.owners if owner is broker), None)


def own_options(command: str) -> Decorator[Any]:
    """The options of all brokers for this command, in the order of the catalog."""
    return stack(*(_flag(name, owners) for name, owners in owners_of(command, brokers()).items()))


def owners_of(command: str, known: Sequence[Broker]) -> Mapping[str, Sequence[Owned]]:
    """Which brokers have which option for this command, by the option's name."""
    found: dict[str, list[Owned]] = {}
    kinds: dict[str, OptionKind] = {}  # of all commands: they share the variable
    for broker in known:
        for one in broker.options:
            kind = kinds.setdefault(one.name, one.kind)
            assert one.kind is kind, f"brokers disagree about {one.name}: {kind} or {one.kind}"
            if command in one.commands:
                found.setdefault(one.name, []).append((broker, one))
    return found


def choices_of(ctx: click.Context, broker: Broker) -> dict[str, Any]:
    """What was chosen among the options of this broker.

    SettingError for another broker's on the command line; as a variable it is ignored: it may be in a
    project's `.env`.
    """
    choices = {}
    for flag in ctx.command.params:
        if not isinstance(flag, BrokerFlag) or flag.name is None:
            continue
        option = flag.described_by(broker)
        if option is None:
            whose = " and ".join(owner.title for owner, _ in flag.owners)
            refuse_typed(ctx, (flag.name,), f"has no effect on {broker.title}: it is for {whose}")
        elif ctx.get_parameter_source(flag.name) in CHOSEN:
            choices[flag.name] = _checked(flag, option, ctx.params[flag.name], broker)
    return choices


def _checked(flag: BrokerFlag, option: BrokerOption, value: Any, broker: Broker) -> Any:
    """A choice may be another broker's, where they share the flag."""
    if option.kind is OptionKind.CHOICE and value not in option.values:
        raise SettingError(
            f"{flag.opts[0]} {value} has no effect on {broker.title}", f"it takes {', '.join(option.values)}"
        )
    return value


def _flag(name: str, owners: Sequence[Owned]) -> Decorator[Any]:
    _, first = owners[0]
    words = tuple(dict.fromkeys(word for _, one in owners for word in one.values))
    return option(
        Group.BROKER,
        f"--{name.replace('_', '-')}",
        name,
        cls=BrokerFlag,
        owners=owners,
        envvar=variable(name),
        help="  ".join(_described(broker, one) for broker, one in owners),
        **_attributes(first, words),
    )


def _described(broker: Broker, option: BrokerOption) -> str:
    usual = f"  [default: {option.usual}]" if option.usual else ""
    return f"{broker.title[0].upper()}{broker.title[1:]}: {option.help}{usual}"


def _attributes(option: BrokerOption, words: tuple[str, ...]) -> dict[str, Any]:
    """What click has to know about the values; each kind has its usual metavar."""
    match option.kind:
        case OptionKind.FLAG:
            return {"is_flag": True}
        case OptionKind.DURATION:
            return {"type": DURATION, "metavar": option.metavar or "DURATION"}
        case OptionKind.COUNT:
            return {"type": POSITIVE, "metavar": option.metavar or "N"}
        case OptionKind.CHOICE:
            kind = Word(words)
            return {"type": kind, "metavar": option.metavar or kind.metavar}
        case OptionKind.TEXT:
            return {"metavar": option.metavar or "TEXT"}
