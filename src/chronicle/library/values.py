"""The values of options as a program gives them, checked like those of the command line.

Rule: a wrong value is a SettingError that names the option, what it takes, and what it got: but for what may
      be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TypeVar

from chronicle.core.rate_limit import parse_rate
from chronicle.core.units import LONGEST, parse_duration, parse_size
from chronicle.errors import SettingError

Member = TypeVar("Member", bound=StrEnum)
MOST: Final = 1_000_000_000
SEE: Final = "see docs/library.md"
NOT_SHOWN: Final = "it may contain a secret: not shown"


@contextmanager
def spelled_for_programs() -> Iterator[None]:
    """Name options in errors as a program writes them: `on_failure`, where operators write `--on-failure`."""
    try:
        yield
    except SettingError as error:
        raise SettingError(_spelled(error.problem), _spelled(error.remedy)) from None


def _spelled(text: str) -> str:
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda flag: flag[1].replace("-", "_"), text)


class Values:
    """The options that were given, by name; each is asked for once, and what is left over is a mistake."""

    def __init__(self, function: str, given: Mapping[str, Any], known: frozenset[str]) -> None:
        for name in given:
            if name not in known:
                raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        self._given = given

    def __getitem__(self, name: str) -> Any:
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        return None if value is None else check_text(name, value)

    def flag(self, name: str, usual: bool = False) -> bool:
        value = self._given.get(name, usual)
        if isinstance(value, bool):
            return value
        raise _wrong(name, "True or False", value)

    def whole(self, name: str, most: int = MOST, least: int = 1) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong(name, f"a whole number from {least} to {most}", value)
        return value

    def rate(self, name: str) -> float:
        value = self._given.get(name, float("inf"))
        try:
            rate = parse_rate(value) if isinstance(value, str) else value
        except ValueError as error:
            raise _wrong(name, str(error), value) from None
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
            raise _wrong(name, "a number per second, or a rate such as 600/min", value)
        return float(rate)

    def factor(self, name: str) -> float | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < float("inf"):
            raise _wrong(name, "a number of at least 1", value)
        return float(value)

    def seconds(self, name: str, usual: float | None = None, *, zero: bool = False) -> float | None:
        value = self._given.get(name)
        return usual if value is None else _seconds(name, value, zero=zero)

    def spans(self, name: str) -> tuple[float, ...] | None:
        value = self._given.get(name)
        if value is None:
            return None
        if isinstance(value, str) or not isinstance(value, Sequence) or not value:
            raise _wrong(name, "durations, such as [5, 30, 300] or ['5s', '30s', '5m']", value)
        return tuple(_seconds(name, one, zero=False) for one in value)

    def size(self, name: str, usual: int) -> int:
        value = self._given.get(name, usual)
        try:
            size = parse_size(value) if isinstance(value, str) else value
        except ValueError as error:
            raise _wrong(name, str(error), value) from None
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise _wrong(name, "a number of bytes, or a size such as 4MiB", value)
        return size

    def member(self, name: str, members: type[Member], usual: Member) -> Member:
        value = self._given.get(name, usual)
        try:
            return members(value)
        except ValueError:
            raise _wrong(name, "one of " + ", ".join(members), value) from None

    def texts(self, name: str) -> tuple[str, ...]:
        """They may be secrets, so none is shown."""
        value = self._given.get(name)
        if value is None:
            return ()
        is_list = isinstance(value, Sequence | Set) and not isinstance(value, str)
        if not is_list or not all(isinstance(one, str) for one in value):
            raise SettingError(f"{name} takes a list of texts", NOT_SHOWN)
        return tuple(value)

    def pairs(self, name: str) -> dict[str, str]:
        value = self._given.get(name, {})
        if not isinstance(value, Mapping) or not all(
            isinstance(one, str) for pair in value.items() for one in pair
        ):
            raise SettingError(f"{name} takes a mapping of texts", NOT_SHOWN)
        return dict(value)

    def function(self, name: str) -> None:
        """Check that it can be called, if it is given."""
        value = self._given.get(name)
        if value is not None and not callable(value):
            raise _wrong(name, "a function", value)

    def instance(self, name: str, kind: type) -> None:
        """Check that it is one of these, if it is given."""
        value = self._given.get(name)
        if value is not None:
            check_instance(name, kind, value)


def check_text(name: str, value: object) -> str:
    """An argument that must be a text."""
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)
    return value


def check_instance(name: str, kind: type, value: object) -> None:
    """An argument that must be one of chronicle's own objects."""
    if not isinstance(value, kind):
        raise SettingError(f"{name} takes a {kind.__name__}, not {type(value).__name__}", SEE)


def _seconds(name: str, value: Any, *, zero: bool) -> float:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise _wrong(name, str(error), value) from None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST:
        raise _wrong(name, "a number of seconds, or a duration such as 250ms, 5s or 10m", value)
    if not seconds and not zero:
        raise _wrong(name, "a duration above zero", value)
    return float(seconds)


def _wrong(name: str, takes: str, value: Any) -> SettingError:
    shown = repr(value)[:40] if isinstance(value, str | int | float) else type(value).__name__
    return SettingError(f"{name} takes {takes}, not {shown}", SEE)
