"""What is written on a RabbitMQ message: basic properties and field tables, bytes in, values out.

Rule 1: nothing here raises. Bytes that make no sense are a fault of their own message (RB13): its headers
        read as empty, the properties that could be read stay, and the fault names places, never content.
Rule 2: values are those of pika's decoder where it has one, with three differences: a timestamp that no
        calendar holds (milliseconds, mostly) stays the number it is; a float stays a float, where pika
        cuts its decimals off; and a table is read strictly, so that a value never runs over its end.
Rule 3: text that is not UTF-8 stays bytes, names of headers included. Nobody finds such a header by a
        `str`, and nobody needs to guess its encoding.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from typing import Any, Final, TypeAlias

from chronicle.core.delivery import Envelope

Text: TypeAlias = str | bytes

# RabbitMQ itself sends two levels (x-death). A producer may send any number, and each one costs stack.
DEEPEST: Final = 64

_U16: Final = Struct(">H").unpack_from
_U32: Final = Struct(">I").unpack_from
_U64: Final = Struct(">Q").unpack_from
_DECIMAL: Final = Struct(">Bi").unpack_from

# Letters as RabbitMQ uses them, which is not as AMQP 0-9-1 lists them; `U` comes from older clients.
_NUMBERS: Final = {
    ord(letter): (Struct(">" + code).unpack_from, Struct(">" + code).size)
    for letter, code in {
        "t": "?", "b": "b", "B": "B", "s": "h", "U": "h", "u": "H", "I": "i", "i": "I",
        "l": "q", "L": "q", "f": "f", "d": "d",
    }.items()
}  # fmt: skip

_CONTINUED: Final = 1
_HEADERS: Final = "headers"
_TEXT: Final = "text"
_OCTET: Final = "octet"
_TIME: Final = "time"

# In the order of the wire, which is the order of the flags.
_PROPERTIES: Final = (
    (1 << 15, "content_type", _TEXT),
    (1 << 14, "content_encoding", _TEXT),
    (1 << 13, "headers", _HEADERS),
    (1 << 12, "delivery_mode", _OCTET),
    (1 << 11, "priority", _OCTET),
    (1 << 10, "correlation_id", _TEXT),
    (1 << 9, "reply_to", _TEXT),
    (1 << 8, "expiration", _TEXT),
    (1 << 7, "message_id", _TEXT),
    (1 << 6, "timestamp", _TIME),
    (1 << 5, "type", _TEXT),
    (1 << 4, "user_id", _TEXT),
    (1 << 3, "app_id", _TEXT),
    (1 << 2, "cluster_id", _TEXT),
)


class _UnreadableError(ValueError):
    """These bytes are not what they should be; never leaves this file."""


def open_envelope(raw: bytes) -> Envelope:
    """Read a content header from its property flags on."""
    headers: dict[Any, Any] = {}
    properties: dict[str, Any] = {}
    fault = ""
    try:
        end = len(raw)
        flags, pos = _flags(raw, end)
        for flag, name, kind in _PROPERTIES:
            if not flags & flag:
                continue
            if kind is _TEXT:
                properties[name], pos = _short(raw, pos, end)
            elif kind is _OCTET:
                after = _within(pos + 1, end)
                properties[name], pos = raw[pos], after
            elif kind is _TIME:
                after = _within(pos + 8, end)
                properties[name], pos = _U64(raw, pos)[0], after
            else:
                start, pos = _block(raw, pos, end)
                # A table that cannot be read says how long it is, so what follows it can be read.
                try:
                    headers = _table(raw, start, pos, 1)
                except _UnreadableError as error:
                    fault = f"the header table cannot be read: {error}"
        if pos != end:
            raise _UnreadableError(f"{end - pos} bytes too many")
    except _UnreadableError as error:
        fault = fault or f"the properties cannot be read: {error}"
    return Envelope({} if fault else headers, properties, fault)


def text(raw: bytes) -> Text:
    """A string as it should be, or the bytes it is."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _flags(raw: bytes, end: int) -> tuple[int, int]:
    """The first word of property flags; basic has no property in a later one."""
    pos = _within(2, end)
    word = first = _U16(raw, 0)[0]
    while word & _CONTINUED:
        after = _within(pos + 2, end)
        word, pos = _U16(raw, pos)[0], after
    return first, pos


def _table(raw: bytes, pos: int, end: int, depth: int) -> dict[Any, Any]:
    if depth > DEEPEST:
        raise _UnreadableError(f"nested deeper than {DEEPEST}")
    table: dict[Any, Any] = {}
    while pos < end:
        name, pos = _short(raw, pos, end)
        table[name], pos = _value(raw, pos, end, depth)
    return table


def _array(raw: bytes, pos: int, end: int, depth: int) -> list[Any]:
    if depth > DEEPEST:
        raise _UnreadableError(f"nested deeper than {DEEPEST}")
    array: list[Any] = []
    while pos < end:
        value, pos = _value(raw, pos, end, depth)
        array.append(value)
    return array


def _value(raw: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    """One value behind its type letter, and where it ends."""
    after = _within(pos + 1, end)
    letter, pos = raw[pos], after
    number = _NUMBERS.get(letter)
    if number is not None:
        unpack, size = number
        after = _within(pos + size, end)
        return unpack(raw, pos)[0], after
    match letter:
        case 0x53:  # S
            start, pos = _block(raw, pos, end)
            return text(raw[start:pos]), pos
        case 0x78:  # x
            start, pos = _block(raw, pos, end)
            return raw[start:pos], pos
        case 0x46:  # F
            start, pos = _block(raw, pos, end)
            return _table(raw, start, pos, depth + 1), pos
        case 0x41:  # A
            start, pos = _block(raw, pos, end)
            return _array(raw, start, pos, depth + 1), pos
        case 0x54:  # T
            after = _within(pos + 8, end)
            return _moment(_U64(raw, pos)[0]), after
        case 0x44:  # D
            after = _within(pos + 5, end)
            decimals, digits = _DECIMAL(raw, pos)
            # From text, because arithmetic would obey the decimal context of whoever calls.
            return Decimal(f"{digits}E-{decimals}"), after
        case 0x56:  # V
            return None, pos
    raise _UnreadableError(f"unknown type at byte {pos - 1}")


def _moment(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def _short(raw: bytes, pos: int, end: int) -> tuple[Text, int]:
    """A string behind one octet of length."""
    start = _within(pos + 1, end)
    after = _within(start + raw[pos], end)
    return text(raw[start:after]), after


def _block(raw: bytes, pos: int, end: int) -> tuple[int, int]:
    """Where the content behind four octets of length begins and ends."""
    start = _within(pos + 4, end)
    return start, _within(start + _U32(raw, pos)[0], end)


def _within(pos: int, end: int) -> int:
    if pos > end:
        raise _UnreadableError(f"{pos - end} bytes missing at byte {end}")
    return pos
