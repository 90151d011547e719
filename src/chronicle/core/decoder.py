"""From a JSON value to a value of the type that a program expects.

Rule 1: a dataclass, a TypedDict and what their fields are made of are decoded here: strict about types, and
        indifferent to fields that nobody asked for. Whole numbers are taken for floats, nothing else is
        converted.
Rule 2: any other callable decodes by itself, and whatever it raises means that the body does not decode.
Rule 3: a type that cannot be decoded is refused when the decoder is made, not when a message comes. A message
        is a JSON object, so a text, a number or an array is refused, too, though fields may be those.
Rule 4: an error names fields of the type and kinds of JSON, never content.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from chronicle.errors import InvalidMessage, SettingError

Decode: TypeAlias = Callable[[Any], Any]

KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "an object",
    list: "an array",
}
NO_OBJECTS: Final = (*(kind for kind in KINDS if kind is not dict), tuple, set, frozenset, bytearray, complex)


def decoder_of(wanted: Any) -> Decode:
    """What decodes a message as this; raises SettingError if nothing can."""
    if not _may_be_object(wanted):
        raise SettingError(
            f"a message is a JSON object, and no object is {_spelled(wanted)}",
            "give it a dataclass, a TypedDict, dict, a function, or bytes for the body as it came",
        )
    if wanted is Any or wanted is object:
        return _as_it_is
    is_structure = is_typeddict(wanted) or (isinstance(wanted, type) and dataclasses.is_dataclass(wanted))
    if is_structure or wanted in KINDS or get_origin(wanted) is not None:
        return _decoder(wanted, {})
    if not callable(wanted):
        raise SettingError(
            "a routing key is tied to a type or a function that decodes",
            "give it a dataclass, a TypedDict, or something to call with the message",
        )
    return wanted  # type: ignore[no-any-return]


def _may_be_object(wanted: Any) -> bool:
    """Whether there are JSON objects that decode as this, as far as its outermost form tells."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Annotated, Required, NotRequired):
        return _may_be_object(arguments[0])
    if origin in (Union, UnionType):
        return any(map(_may_be_object, arguments))
    if origin is not None:
        return origin not in (list, tuple, Literal)
    return not isinstance(wanted, type) or not (wanted in NO_OBJECTS or issubclass(wanted, Enum))


def _spelled(wanted: Any) -> str:
    return wanted.__name__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)


def _decoder(wanted: Any, made: dict[Any, Decode]) -> Decode:
    """The decoder of a type; `made` knows those under way, so that a type may contain itself."""
    if wanted in made:
        return lambda value: made[wanted](value)
    if wanted is Any or wanted is object:
        return _as_it_is
    if wanted in KINDS:
        return _plain(wanted)
    if is_typeddict(wanted):
        return _structure(wanted, dict, _required_keys(wanted), made)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _structure(wanted, wanted, _required_fields(wanted), made)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return _member(wanted)
    return _generic(wanted, made)


def _generic(wanted: Any, made: dict[Any, Decode]) -> Decode:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Annotated, Required, NotRequired):
        return _decoder(arguments[0], made)
    if origin in (Union, UnionType):
        return _any_of([_decoder(one, made) for one in arguments])
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return _listed(_decoder(arguments[0], made), list)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _listed(_decoder(arguments[0], made), tuple)
    if origin is dict and arguments[0] is str:
        return _mapped(_decoder(arguments[1], made))
    raise SettingError(
        f"{getattr(wanted, '__name__', wanted)} cannot be decoded from JSON",
        "use plain JSON types, dataclasses and TypedDicts, or give a function that decodes",
    )


def _as_it_is(value: Any) -> Any:
    return value


def _plain(wanted: type) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is wanted:
            return value
        if wanted is float and type(value) is int:
            return float(value)
        raise InvalidMessage(f"is not {KINDS[wanted]}")

    return decode


def _member(wanted: type[Enum]) -> Decode:
    def decode(value: Any) -> Any:
        try:
            return wanted(value)
        except (ValueError, TypeError):
            raise InvalidMessage(f"is no {wanted.__name__}") from None

    return decode


def _literal(allowed: tuple[Any, ...]) -> Decode:
    def decode(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise InvalidMessage("is none of the values it may have")
        return value

    return decode


def _any_of(decoders: list[Decode]) -> Decode:
    def decode(value: Any) -> Any:
        for one in decoders:
            try:
                return one(value)
            except InvalidMessage as error:
                problem = error
        raise problem

    return decode


def _listed(inner: Decode, make: Callable[[list[Any]], Any]) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise InvalidMessage("is not an array")
        return make([inner(one) for one in value])

    return decode


def _mapped(inner: Decode) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise InvalidMessage("is not an object")
        return {name: inner(one) for name, one in value.items()}

    return decode


def _required_keys(wanted: Any) -> frozenset[str]:
    return frozenset(wanted.__required_keys__)


def _required_fields(wanted: Any) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        field.name
        for field in dataclasses.fields(wanted)
        if field.init and field.default is missing and field.default_factory is missing
    )


def _structure(
    wanted: Any, make: Callable[..., Any], required: frozenset[str], made: dict[Any, Decode]
) -> Decode:
    """A dataclass or a TypedDict: every field by its own decoder; what is not in the body has its default."""
    fields: dict[str, Decode] = {}

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise InvalidMessage("is not an object")
        found = {}
        for name, inner in fields.items():
            if name in value:
                try:
                    found[name] = inner(value[name])
                except InvalidMessage as error:
                    raise InvalidMessage(f".{name}{_joined(error)}") from None
            elif name in required:
                raise InvalidMessage(f".{name} is missing")
        return make(**found)

    made[wanted] = decode
    hints = get_type_hints(wanted, include_extras=True)
    if not is_typeddict(wanted):
        hints = {field.name: hints[field.name] for field in dataclasses.fields(wanted) if field.init}
    fields.update({name: _decoder(hint, made) for name, hint in hints.items()})
    return decode


def _joined(error: InvalidMessage) -> str:
    text = str(error)
    return text if text.startswith(".") else f" {text}"
