"""Reads the envelope of a RabbitMQ message: basic properties and field tables, bytes in, values out.

Rule 1: opening an envelope never raises. Bytes that make no sense affect only their own message (RB13):
        its headers read as empty except for chronicle's own, the properties that could be read stay, and the
        fault names positions, never content.
Rule 2: values are those of pika's decoder where it has one, with three differences: a timestamp out of range
        (usually milliseconds) stays the number it is; a float stays a float, where pika cuts off its
        decimals; and a table is read strictly, so that a value never runs past its end.
Rule 3: text that is not UTF-8 stays bytes, names of headers included. Such a header is not found by a `str`,
        and its encoding is never guessed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from typing import Any, Final, TypeAlias

from chronicle.core.delivery import Envelope
from chronicle.core.trace_headers import CORRELATION_ID, RAW_CORRELATION_ID, RAW_TRACEPARENT

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

_SIZES: Final = {
    **{letter: size for letter, (_, size) in _NUMBERS.items()}, ord("T"): 8, ord("D"): 5, ord("V"): 0,
}  # fmt: skip
_BLOCKS: Final = frozenset(b"SxFA")
_OUR_NAMES: Final = b"x-chronicle-"

_CONTINUED: Final = 1
HEADERS: Final = "headers"
TEXT: Final = "text"
OCTET: Final = "octet"
TIME: Final = "time"

# In the order of the wire, which is the order of the flags.
PROPERTIES: Final = (
    (1 << 15, "content_type", TEXT),
    (1 << 14, "content_encoding", TEXT),
    (1 << 13, "headers", HEADERS),
    (1 << 12, "delivery_mode", OCTET),
    (1 << 11, "priority", OCTET),
    (1 << 10, "correlation_id", TEXT),
    (1 << 9, "reply_to", TEXT),
    (1 << 8, "expiration", TEXT),
    (1 << 7, "message_id", TEXT),
    (1 << 6, "timestamp", TIME),
    (1 << 5, "type", TEXT),
    (1 << 4, "user_id", TEXT),
    (1 << 3, "app_id", TEXT),
    (1 << 2, "cluster_id", TEXT),
)

_CORRELATED: Final = next(flag for flag, name, _ in PROPERTIES if name == CORRELATION_ID) >> 8  # first byte


class Unreadable(ValueError):
    """These bytes are not what they should be."""


def open_envelope(raw: bytes) -> Envelope:
    """Read a content header from its property flags on."""
    headers: dict[Any, Any] = {}
    properties: dict[str, Any] = {}
    fault = ""
    try:
        end = len(raw)
        flags, pos = _flags(raw, end)
        for flag, name, kind in PROPERTIES:
            if not flags & flag:
                continue
            if kind is TEXT:
                properties[name], pos = _short(raw, pos, end)
            elif kind is OCTET:
                after = _within(pos + 1, end)
                properties[name], pos = raw[pos], after
            elif kind is TIME:
                after = _within(pos + 8, end)
                properties[name], pos = _U64(raw, pos)[0], after
            else:
                start, pos = _block(raw, pos, end)
                # A table that cannot be read still gives its length, so what follows it can be read.
                try:
                    headers = _table(raw, start, pos, 1)
                except Unreadable as error:
                    fault = f"the header table cannot be read: {error}"
                    headers = _ours(raw[start:pos])
        if pos != end:
            raise Unreadable(f"{end - pos} extra bytes at the end")
    except Unreadable as error:
        fault, headers = fault or f"the properties cannot be read: {error}", {}
    return Envelope(headers, properties, fault)


def names_trace(raw: bytes) -> bool:
    """Whether an envelope may name a trace or a conversation, asked of its bytes."""
    return RAW_TRACEPARENT in raw or bool(raw and raw[0] & _CORRELATED) or RAW_CORRELATION_ID in raw


def properties_of(raw: bytes) -> dict[str, bytes]:
    """The properties of a content header as they came, by name; raises Unreadable if it is not one."""
    end = len(raw)
    flags, pos = _flags(raw, end)
    pieces: dict[str, bytes] = {}
    for flag, name, kind in PROPERTIES:
        if flags & flag:
            start = pos
            if kind is TEXT:
                pos = _within(_within(pos + 1, end) + raw[pos], end)
            elif kind is HEADERS:
                pos = _block(raw, pos, end)[1]
            else:
                pos = _within(pos + (1 if kind is OCTET else 8), end)
            pieces[name] = raw[start:pos]
    if pos != end:
        raise Unreadable(f"{end - pos} extra bytes at the end")
    return pieces


def fields_of(table: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a table as they came, each with its name; looks into none, so depth does not matter."""
    fields = []
    pos, end = 0, len(table)
    while pos < end:
        start = pos
        behind_name = _within(_within(pos + 1, end) + table[pos], end)
        pos = _behind(table, behind_name, end)
        fields.append((table[start + 1 : behind_name], table[start:pos]))
    return fields


def values_of(array: bytes, most: int) -> list[bytes] | None:
    """The values of an array as they came, each with its type letter; None if there are more than `most`."""
    values: list[bytes] = []
    pos, end = 0, len(array)
    while pos < end:
        if len(values) == most:
            return None
        start, pos = pos, _behind(array, pos, end)
        values.append(array[start:pos])
    return values


def _behind(raw: bytes, pos: int, end: int) -> int:
    """Where the value ends whose type letter is here."""
    after = _within(pos + 1, end)
    letter = raw[pos]
    if letter in _BLOCKS:
        return _block(raw, after, end)[1]
    size = _SIZES.get(letter)
    if size is None:
        raise Unreadable(f"unknown type at byte {pos}")
    return _within(after + size, end)


def _ours(table: bytes) -> dict[str, Any]:
    """chronicle's own headers in a table that cannot be read as a whole: its tries must still be counted."""
    try:
        kept = b"".join(field for name, field in fields_of(table) if name.startswith(_OUR_NAMES))
        return _table(kept, 0, len(kept), 1)
    except Unreadable:
        return {}


def text(raw: bytes) -> Text:
    """The bytes as a string, or unchanged if they are not UTF-8."""
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
        raise Unreadable(f"nested deeper than {DEEPEST}")
    table: dict[Any, Any] = {}
    while pos < end:
        name, pos = _short(raw, pos, end)
        table[name], pos = _value(raw, pos, end, depth)
    return table


def _array(raw: bytes, pos: int, end: int, depth: int) -> list[Any]:
    if depth > DEEPEST:
        raise Unreadable(f"nested deeper than {DEEPEST}")
    array: list[Any] = []
    while pos < end:
        value, pos = _value(raw, pos, end, depth)
        array.append(value)
    return array


def _value(raw: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    """One value after its type letter, and where it ends."""
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
            # From text, because arithmetic would depend on the caller's decimal context.
            return Decimal(f"{digits}E-{decimals}"), after
        case 0x56:  # V
            return None, pos
    raise Unreadable(f"unknown type at byte {pos - 1}")


def _moment(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def _short(raw: bytes, pos: int, end: int) -> tuple[Text, int]:
    """A string after one octet of length."""
    start = _within(pos + 1, end)
    after = _within(start + raw[pos], end)
    return text(raw[start:after]), after


def _block(raw: bytes, pos: int, end: int) -> tuple[int, int]:
    """Where the content after four octets of length begins and ends."""
    start = _within(pos + 4, end)
    return start, _within(start + _U32(raw, pos)[0], end)


def _within(pos: int, end: int) -> int:
    if pos > end:
        raise Unreadable(f"{pos - end} bytes missing at byte {end}")
    return pos
