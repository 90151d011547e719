"""Which dead letters are selected: `reason=timeout`, `id=1001,1002`, `entry=17`, `schema=…`, `age>1d`.

Rule 1: all conditions must hold; none at all means every dead letter.
Rule 2: an unknown value does not match: a letter without a time is neither older nor younger than a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from chronicle.core.deadletters.letter import Letter
from chronicle.core.frozen import frozen
from chronicle.core.units import parse_duration

FORMS: Final = "reason=TEXT, id=N (or id=N,N…), entry=ID (or entry=ID,ID…), schema=NAME, age>1d or age<1h"
_CONDITION: Final = re.compile(r"(reason|id|entry|schema|age)\s*([=<>])\s*(.+)", re.DOTALL)
_IDS: Final = re.compile(r"\d{1,19}(?:\s*,\s*\d{1,19})*", re.ASCII)


@frozen
class Reason:
    """The reason contains this text, case-insensitive."""

    text: str

    def holds(self, letter: Letter, _now: int) -> bool:
        return self.text.casefold() in letter.death.reason.casefold()


@frozen
class Ids:
    """The message has one of these action ids."""

    ids: frozenset[int]

    def holds(self, letter: Letter, _now: int) -> bool:
        return letter.action_id in self.ids


@frozen
class Entries:
    """The broker calls it one of these, or called it that before it died."""

    names: frozenset[str]

    def holds(self, letter: Letter, _now: int) -> bool:
        return not self.names.isdisjoint((letter.entry, letter.entry_before))


@frozen
class SchemaName:
    """The message names exactly this schema."""

    name: str

    def holds(self, letter: Letter, _now: int) -> bool:
        return letter.schema == self.name


@frozen
class Age:
    """The message died longer ago than this many seconds, or more recently."""

    older: bool
    seconds: float

    def holds(self, letter: Letter, now: int) -> bool:
        if letter.died is None:
            return False
        age = (now - letter.died) / 1000
        return age > self.seconds if self.older else age < self.seconds


Condition: TypeAlias = Reason | Ids | Entries | SchemaName | Age


def parse_condition(text: str) -> Condition:
    """Read one condition. Raises ValueError with what is accepted."""
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise ValueError(FORMS)
    name, sign, value = found.groups()
    if (name == "age") == (sign == "="):
        raise ValueError("age>1d or age<1h" if name == "age" else f"{name}=… with an equals sign")
    match name:
        case "reason":
            return Reason(value)
        case "schema":
            return SchemaName(value)
        case "entry":
            names = frozenset(name.strip() for name in value.split(","))
            if "" in names:
                raise ValueError("entry= with one or more ids, as dlq show prints them")
            return Entries(names)
        case "age":
            return Age(sign == ">", parse_duration(value))
    if _IDS.fullmatch(value) is None:
        raise ValueError("id= with whole numbers, such as id=1001 or id=1001,1002")
    return Ids(frozenset(map(int, value.split(","))))


def matches(letter: Letter, conditions: Iterable[Condition], now: int) -> bool:
    """Whether this letter is selected; `now` in milliseconds since 1970."""
    return all(condition.holds(letter, now) for condition in conditions)
