"""Envelopes to send: basic properties and field tables, values in, bytes out; and old ones with new headers.

Rule 1: what is passed on is not decoded and encoded again. Headers that stay are the bytes that came, so no
        float loses its decimals and no number its width, and even an unreadable table can be passed on.
Rule 2: what `decode.open_envelope` reads from an encoded envelope is what went in; InvalidMessage names
        what AMQP cannot carry by its type, never by its content.
Rule 3: a message that chronicle moves to another queue is persistent, and goes without what would make the
        broker delete, refuse or copy it on the way (see `relabelled`).
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from struct import Struct
from typing import Any, Final

from chronicle.errors import InvalidMessage
from chronicle.transports.rabbitmq.codec.decode import (
    DEEPEST,
    OCTET,
    PROPERTIES,
    TEXT,
    Text,
    fields_of,
    properties_of,
)

PERSISTENT: Final = 2
UNSENDABLE: Final = "its headers cannot be passed on to another queue"
MAX_DIGITS: Final = 10  # of 31 bits
_FRAME_ROOM: Final = 20  # of a content header's frame: its own eight bytes, and twelve before the flags

_U8: Final = Struct(">B").pack
_U16: Final = Struct(">H").pack
_U32: Final = Struct(">I").pack
_U64: Final = Struct(">Q").pack
_I64: Final = Struct(">q").pack
_DOUBLE: Final = Struct(">d").pack
_DECIMAL: Final = Struct(">Bi").pack


def encode(headers: Mapping[Any, Any], properties: Mapping[str, Any]) -> bytes:
    """A content header from its property flags on; raises InvalidMessage."""
    pieces: dict[str, bytes] = {}
    for _, name, kind in PROPERTIES:
        value = properties.get(name)
        if value is None:
            continue
        if kind is TEXT:
            pieces[name] = _short(value, name)
        else:
            size, pack = (8, _U8) if kind is OCTET else (64, _U64)
            if not _is_whole(value) or not 0 <= value < 1 << size:
                raise InvalidMessage(f"the property {name} is not a number that AMQP can carry")
            pieces[name] = pack(value)
    if headers:
        pieces["headers"] = _block(encode_table(headers))
    return _joined(pieces)


def relabelled(raw: bytes, headers: Mapping[str, Any], without: Collection[bytes], user: str) -> bytes:
    """The envelope `raw` for another queue: `headers` replace those of the same name, `without` is left out.

    A time to live is removed, as when the broker dead-letters: it would end a wait early, or delete a dead
    letter. Another user's name is removed: the broker refuses it. Raises Unreadable or InvalidMessage.
    """
    pieces = properties_of(raw)
    gone = {*without, *(name.encode() for name in headers)}
    table = pieces["headers"][4:] if "headers" in pieces else b""
    kept = b"".join(field for name, field in fields_of(table) if name not in gone)
    pieces["headers"] = _block(kept + encode_table(headers))
    pieces["delivery_mode"] = _U8(PERSISTENT)
    pieces.pop("expiration", None)
    if pieces.get("user_id", b"")[1:] != user.encode():
        pieces.pop("user_id", None)
    return _joined(pieces)


def fits_frame(envelope: bytes, frame_max: int) -> bool:
    """Whether a client may send this envelope: AMQP does not split it, and a broker hangs up on more."""
    return len(envelope) + _FRAME_ROOM <= frame_max


def encode_table(table: Mapping[Any, Any], depth: int = 1) -> bytes:
    """The fields of a table, without its length."""
    _check_depth(depth)
    return b"".join(
        _short(name, "a header's name") + encode_value(value, depth) for name, value in table.items()
    )


def encode_value(value: Any, depth: int = 1) -> bytes:
    """A value after its type letter, with the letters RabbitMQ itself uses."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return _whole(value)
        case float():
            return b"d" + _DOUBLE(value)
        case str():
            return b"S" + _block(_utf8(value))
        case bytes():
            return b"x" + _block(value)
        case Decimal():
            return _decimal(value)
        case datetime():
            return _moment(_seconds(value))
        case list() | tuple():
            _check_depth(depth + 1)
            return b"A" + _block(b"".join(encode_value(item, depth + 1) for item in value))
        case Mapping():
            return b"F" + _block(encode_table(value, depth + 1))
    raise InvalidMessage(f"a header is a {type(value).__name__}, which AMQP cannot carry")


def _whole(value: int) -> bytes:
    if -(2**63) <= value < 2**63:
        return b"l" + _I64(value)
    if 0 <= value < 2**64:
        # The only unsigned type of this size is a timestamp, and one out of range reads as its number.
        return _moment(value)
    raise InvalidMessage("a header is a number of more than 64 bits, which AMQP cannot carry")


def _moment(seconds: int) -> bytes:
    if seconds < 0:
        raise InvalidMessage("a header is a time before 1970, which AMQP cannot carry")
    return b"T" + _U64(seconds)


def _seconds(value: datetime) -> int:
    try:
        return timegm(value.utctimetuple())
    except OverflowError:
        raise InvalidMessage("a header is a time beyond the calendar, which AMQP cannot carry") from None


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and -255 <= exponent <= 0 and len(digits) <= MAX_DIGITS:
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        if -(2**31) <= unscaled < 2**31:
            return b"D" + _DECIMAL(-exponent, unscaled)
    raise InvalidMessage("a header is a decimal number that AMQP cannot carry")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: Text, what: str) -> bytes:
    raw = value if isinstance(value, bytes) else _utf8(value)
    if len(raw) > 255:
        raise InvalidMessage(f"{what} is longer than the 255 bytes that AMQP allows")
    return _U8(len(raw)) + raw


def _utf8(value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidMessage(f"there is a {type(value).__name__} where AMQP needs text")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidMessage("a header or property is not valid UTF-8 text") from None


def _block(content: bytes) -> bytes:
    return _U32(len(content)) + content


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidMessage(f"the headers are nested deeper than {DEEPEST}")


def _joined(pieces: Mapping[str, bytes]) -> bytes:
    """The flags and the properties they announce, in wire order."""
    present = [(flag, name) for flag, name, _ in PROPERTIES if name in pieces]
    flags = sum(flag for flag, _ in present)
    return _U16(flags) + b"".join(pieces[name] for _, name in present)
