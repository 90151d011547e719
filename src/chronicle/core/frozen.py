"""Classes that are only values: their fields say everything, and never change.

A frozen dataclass does the same, but half a millisecond goes by until each is made, and a command makes fifty
of them before it does anything. It also takes twice the time to make an instance, and some are made for every
message. Measured with Python 3.11: 0.13 ms instead of 0.54 for a class of five fields.

Rule: that nothing is assigned is seen by the type checker, not at run time. So what users of the library
      make themselves, such as its options, is a frozen dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots, equality, a hash and a representation, unless the class has its own."""
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    own = fields(made)  # type: ignore[arg-type]
    compared = tuple(one.name for one in own if one.compare)
    hashed = tuple(one.name for one in own if one.compare and one.hash is not False)
    shown = tuple(one.name for one in own if one.repr)

    def equals(self: T, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return [getattr(self, name) for name in compared] == [getattr(other, name) for name in compared]

    def hash_of(self: T) -> int:
        return hash(tuple([getattr(self, name) for name in hashed]))

    def text_of(self: T) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    for name, method in (("__eq__", equals), ("__hash__", hash_of), ("__repr__", text_of)):
        if name not in vars(cls):
            setattr(made, name, method)
    return made
