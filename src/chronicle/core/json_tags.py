"""Values that JSON lacks, written as JSON and read back as they were.

Rule 1: what JSON can express stays as it is. Anything else becomes an object with one key starting with `$`:

    $base64     bytes                                 $float   nan, inf, -inf
    $datetime   a date and time, ISO 8601             $int     beyond 64 bits, in hexadecimal
    $decimal    a decimal number, as its text         $text    with half a surrogate pair: UTF-8 in base64
    $map        [[key, value], …]: an object with keys that are not text, or that start with `$`

Rule 2: an object that really has a key with a `$` is written as a `$map`, so nothing is mistaken for a tag.
Rule 3: a file is anybody's word. Numbers and times that no broker could have sent, and that would fail or
        take for ever wherever somebody calculates with them, are refused when they are read; and so is
        what is nested deeper than any broker nests it. How deep Python itself gets depends on its version.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final

MAX_DIGITS: Final = 1000  # of a number; Python itself refuses to write or read more than 4300
MAX_EXPONENT: Final = 6144  # of a decimal number, as in IEEE 754
MAX_LEVELS: Final = (
    256  # RabbitMQ's tables have 64, which are twice as many here if all are a `$map` in a list
)


def tag(value: Any) -> Any:
    """The value in a form JSON can express."""
    match value:
        case None | bool():
            return value
        case str():
            return (
                str(value)
                if _is_text(value)
                else {"$text": to_base64(value.encode("utf-8", "surrogatepass"))}
            )
        case int():
            return int(value) if -(2**63) <= value < 2**64 else {"$int": hex(value)}
        case float():
            return float(value) if isfinite(value) else {"$float": str(float(value))}
        case bytes() | bytearray() | memoryview():
            return {"$base64": to_base64(bytes(value))}
        case datetime():
            return {"$datetime": value.isoformat()}
        case Decimal():
            return {"$decimal": str(value)}
        case list() | tuple():
            return [tag(item) for item in value]
        case Mapping():
            if all(isinstance(key, str) and not key.startswith("$") and _is_text(key) for key in value):
                return {str(key): tag(item) for key, item in value.items()}
            return {"$map": [[tag(key), tag(item)] for key, item in value.items()]}
    raise TypeError(f"a record cannot hold a value of the type {type(value).__name__}")


def untag(value: Any, levels: int = MAX_LEVELS) -> Any:
    """The value that `tag` was given; raises ValueError for an unknown tag, and beyond so many levels."""
    if levels == 0:
        raise ValueError("it is nested too deeply")
    match value:
        case list():
            return [untag(item, levels - 1) for item in value]
        case dict():
            name = next((key for key in value if key.startswith("$")), None)
            if name is None:
                return {key: untag(item, levels - 1) for key, item in value.items()}
            if len(value) > 1 or name not in _READERS:
                raise ValueError("an object has a key that starts with $ and is not a record's tag")
            try:
                return _READERS[name](value[name], levels - 1)
            except (TypeError, AttributeError, ValueError, OverflowError, InvalidOperation):
                raise ValueError(f"a {name} is malformed") from None
        case _:
            return value


def to_base64(raw: bytes) -> str:
    return b2a_base64(raw, newline=False).decode()


def from_base64(text: str) -> bytes:
    """The bytes; raises ValueError also for what lenient decoders skip, and for non-canonical spellings."""
    if not isinstance(text, str):
        raise TypeError("base64 is a text")
    raw = a2b_base64(text, strict_mode=True)
    if to_base64(raw) != text:  # bits after the last byte, which decoders ignore
        raise ValueError("this is not canonical base64")
    return raw


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _datetime(text: str, _: int) -> datetime:
    value = datetime.fromisoformat(text)
    value.astimezone(UTC)  # fails for a moment before the year 1 or after 9999
    return value


def _decimal(text: str, _: int) -> Decimal:
    value = Decimal(_number(text))
    if value.is_finite() and abs(value.adjusted()) > MAX_EXPONENT:
        raise ValueError("the exponent is too large")
    return value


def _number(text: str) -> str:
    if len(text) > MAX_DIGITS:
        raise ValueError("too many digits")
    return text


def _pairs(pairs: list[Any], levels: int) -> dict[Any, Any]:
    return {untag(key, levels): untag(item, levels) for key, item in pairs}


# Each is given what stands under its tag, and how many levels that may have.
_READERS: Final[Mapping[str, Callable[[Any, int], Any]]] = {
    "$base64": lambda text, _: from_base64(text),
    "$datetime": _datetime,
    "$decimal": _decimal,
    "$float": lambda text, _: float(_number(text)),
    "$int": lambda text, _: int(_number(text), 16),
    "$map": _pairs,
    "$text": lambda text, _: from_base64(text).decode("utf-8", "surrogatepass"),
}
