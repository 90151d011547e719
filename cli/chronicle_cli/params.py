"""The types of option values.

Rule: a wrong value gets one line that names the option (or the variable it came from), what it takes, and
what was given.
"""

from __future__ import annotations

import math
import os
import re
from enum import StrEnum
from typing import Any, Generic, NoReturn, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from chronicle.core.order import ORDER_FORMS, parse_order
from chronicle.core.policy import FAILURE_FORMS, OnFailure, parse_on_failure
from chronicle.core.rate_limit import parse_rate
from chronicle.core.units import parse_duration, parse_size
from chronicle_cli.completion import words
from chronicle_cli.log_levels import LEVELS, LogLevels, parse_levels

Member = TypeVar("Member", bound=StrEnum)


class Whole(click.ParamType[int]):
    """A whole number within bounds, written in plain digits."""

    name = "n"

    def __init__(self, minimum: int, maximum: int = 1_000_000_000) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if type(value) is int:
            return value
        text = str(value)
        if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) < self.minimum:
            refuse(f"a whole number of at least {self.minimum}", text, param, ctx)
        if int(text) > self.maximum:
            refuse(f"a whole number of at most {self.maximum}", text, param, ctx)
        return int(text)


class Truth(click.types.BoolParamType):
    """Yes or no; only a variable can say anything else."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        truth = self.str_to_bool(value)
        if truth is None:
            refuse("true or false", str(value), param, ctx)
        return truth


class Factor(click.ParamType[float]):
    """A number of at least one, with or without a fraction."""

    name = "x"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if type(value) is float:
            return value
        text = str(value)
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) or not 1 <= float(text) < math.inf:
            refuse("a number of at least 1, such as 2 or 1.5", text, param, ctx)
        return float(text)


class Duration(click.ParamType[float]):
    """Seconds, written with a unit."""

    name = "duration"

    def __init__(self, *, zero: bool) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if type(value) is float:
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            refuse(str(error), str(value), param, ctx)
        if not seconds and not self.zero:
            refuse("a duration above zero, such as 250ms, 5s or 10m", str(value), param, ctx)
        return seconds


class Rate(click.ParamType[float]):
    """A number per second, minute or hour."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if type(value) is float:
            return value
        try:
            return parse_rate(str(value))
        except ValueError as error:
            refuse(str(error), str(value), param, ctx)


class Durations(click.ParamType[tuple[float, ...]]):
    """Several durations above zero, separated by commas."""

    name = "durations"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            spans = tuple(parse_duration(text) for text in str(value).split(","))
        except ValueError:
            spans = ()
        if not spans or not all(spans):
            refuse("durations above zero, separated by commas, such as 5s,30s,5m", str(value), param, ctx)
        return spans


class Size(click.ParamType[int]):
    """Bytes, written with or without a unit; at least one."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if type(value) is int:
            return value
        try:
            size = parse_size(str(value))
        except ValueError as error:
            refuse(str(error), str(value), param, ctx)
        if size < 1:
            refuse("a size of at least one byte", str(value), param, ctx)
        return size


class OneOf(click.ParamType[Member], Generic[Member]):
    """A member of an enumeration, by its value."""

    name = "choice"

    def __init__(self, members: type[Member]) -> None:
        self.members = members

    @property
    def metavar(self) -> str:
        return "[" + "|".join(self.members) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Member:
        try:
            return self.members(str(value))
        except ValueError:
            refuse("one of " + ", ".join(self.members), str(value), param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words(self.members, incomplete)


class Word(click.ParamType[str]):
    """One of a few words."""

    name = "choice"

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    @property
    def metavar(self) -> str:
        return "[" + "|".join(self.words) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.words:
            refuse("one of " + ", ".join(self.words), str(value), param, ctx)
        return str(value)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words(self.words, incomplete)


class Failure(click.ParamType[tuple[OnFailure, int]]):
    """What to do with a failed message; with `retry:N` the number of tries, else zero."""

    name = "choice"
    metavar = "[" + "|".join(FAILURE_FORMS) + "]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[OnFailure, int]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_on_failure(str(value))
        except ValueError as error:
            refuse(str(error), str(value), param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words((form.replace(":N", ":5") for form in FAILURE_FORMS), incomplete)


class Ordering(click.ParamType[str]):
    """What is handled one after the other; which of the forms a broker has is for the broker to say."""

    name = "order"
    metavar = "[" + "|".join(ORDER_FORMS) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_order(str(value))
        except ValueError as error:
            refuse(str(error), str(value), param, ctx)
        return str(value)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words((form.removesuffix("PATH") for form in ORDER_FORMS), incomplete)


class Levels(click.ParamType[LogLevels]):
    """The level of chronicle's own lines, and of other loggers by their names."""

    name = "levels"
    metavar = f"[{'|'.join(LEVELS)}][,LOGGER=LEVEL…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LogLevels:
        if isinstance(value, LogLevels):
            return value
        try:
            return parse_levels(str(value))
        except ValueError as error:
            takes, _, meant = str(error).partition("; ")
            refuse(takes, str(value), param, ctx, meant)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return words(LEVELS, incomplete)


class KeyValue(click.ParamType[tuple[str, str]]):
    """A pair written KEY=VALUE. The value may be a secret and is never repeated."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key.strip():
            refuse("KEY=VALUE", None, param, ctx)
        return key.strip(), rest


def refuse(
    takes: str,
    given: str | None,
    param: click.Parameter | None,
    ctx: click.Context | None,
    meant: str = "",
) -> NoReturn:
    """Say in one line what an option takes and what it got, and perhaps what was meant."""
    quoted = "" if given is None else f", not {given[:40]!r}"
    raise click.UsageError(f"{spelled(param, ctx)} takes {takes}{quoted}{meant and f'; {meant}'}", ctx)


def spelled(param: click.Parameter | None, ctx: click.Context | None) -> str:
    """The name the operator used: the flag, or the variable when the value came from there."""
    if param is None:
        return "the value"
    flag = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    if ctx is not None and ctx.get_parameter_source(param.name or "") is ParameterSource.ENVIRONMENT:
        names = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
        used = next((name for name in names if os.environ.get(name)), None)
        return f"{used} ({flag})" if used else flag
    return flag


POSITIVE = Whole(1)
NATURAL = Whole(0)
WORKERS = Whole(1, 10_000)
TRUTH = Truth()
FACTOR = Factor()
DURATION = Duration(zero=True)
SPAN = Duration(zero=False)
RATE = Rate()
DURATIONS = Durations()
SIZE = Size()
FAILURE = Failure()
ORDER = Ordering()
KEY_VALUE = KeyValue()
LOG_LEVELS = Levels()
