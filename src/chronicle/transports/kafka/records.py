"""A record as a delivery, and a message as a record.

Rule 1: body and key are the record's bytes, untouched. A record without a value (a tombstone) has an empty
        body and the property `tombstone`; it goes back as a record without a value.
Rule 2: headers are text where they are UTF-8, else bytes, or None; of a name that occurs more than once, a
        list. What was read here is written as the same bytes, in the order of the names' first occurrence.
Rule 3 (D-21): a key is often an e-mail address. It is in `origin` and `properties`, which go to files, and in
        no log line.
Rule 4: 50,000 records a second come through `delivery_of`: what not every record needs is made on access.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from chronicle.core.deadletters.death import ATTEMPTS, FIRST, LAST, OFFSET, PARTITION, REDRIVES
from chronicle.core.delivery import Delivery, Envelope, Lease
from chronicle.core.json_tags import tag
from chronicle.core.record import dump
from chronicle.errors import InvalidMessage
from chronicle.transports.seam import Outgoing

NAME: Final = "kafka"
KEY: Final = "key"
TOMBSTONE: Final = "tombstone"
NUMBERS: Final = frozenset((ATTEMPTS, FIRST, LAST, REDRIVES, PARTITION, OFFSET))
PAST: Final = (PARTITION, OFFSET)  # where a message died is past when it is published
UNREADABLE: Final = "the record's headers cannot be read"
SPOILT: Final[list[Any]] = []  # the headers of a message that the client could not decode, once we know

Headers: TypeAlias = list[tuple[str, bytes | None]]


def delivery_of(message: Message, queue: str, lease: Lease | None = None) -> Delivery:
    """The record as the engine sees it; the lease is the transport's handle, too."""
    value = message.value()
    kind, timestamp = message.timestamp()
    return Delivery(
        b"" if value is None else value,
        queue=queue,
        transport=NAME,
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        origin={
            "topic": queue,
            "partition": message.partition(),
            "offset": message.offset(),
            KEY: message.key(),
        },
        handle=lease,
        lease=lease,
        open_envelope=open_envelope,
        raw_envelope=message,
        names_trace=names_trace,
    )


def open_envelope(message: Message) -> Envelope:
    """Headers and properties; never raises."""
    properties: dict[str, Any] = {}
    key = message.key()
    if key is not None:
        properties[KEY] = _text(key)
    if message.value() is None:
        properties[TOMBSTONE] = True
    pairs = headers_of(message)
    if pairs is None:
        return Envelope({}, properties, UNREADABLE)
    return Envelope(decoded(pairs), properties)


def names_trace(message: Message) -> bool:
    """Whether a record has any headers at all; few have, and those are cheap to look through."""
    return bool(headers_of(message))


def headers_of(message: Message) -> Headers | None:
    """The headers as they came; None when the client cannot decode them, as with a name that is not UTF-8."""
    try:
        headers: Any = message.headers()
    except Exception:  # the client raises whatever it meets
        # Asked again, it would hand out its half-made list, and reading that ends the process.
        message.set_headers(SPOILT)
        return None
    return None if headers is SPOILT else list(headers or ())


def decoded(pairs: Headers) -> dict[str, Any]:
    """Headers as a mapping."""
    headers: dict[str, Any] = {}
    often: set[str] = set()
    for name, raw in pairs:
        value = _number(raw) if name in NUMBERS else _text(raw)
        if name not in headers:
            headers[name] = value
        elif name in often:
            headers[name].append(value)
        else:
            often.add(name)
            headers[name] = [headers[name], value]
    return headers


def encoded(headers: Mapping[str, Any]) -> Headers:
    """A mapping as headers; InvalidMessage for what cannot be written.

    A list of more than one text is a name that occurs more than once; anything else that is no text is JSON.
    """
    pairs: Headers = []
    for name, value in headers.items():
        _check_name(name)
        if isinstance(value, list) and len(value) > 1 and all(map(_is_plain, value)):
            pairs += [(name, _bytes(item)) for item in value]
        else:
            pairs.append((name, _bytes(value)))
    return pairs


def record_of(message: Outgoing) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of the record that a message becomes; InvalidMessage if it cannot be one."""
    value = None if message.properties.get(TOMBSTONE) is True and not message.body else message.body
    headers = {name: header for name, header in message.headers.items() if name not in PAST}
    return _key(message.properties.get(KEY)), value, encoded(headers)


def _key(key: object) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:
            pass
    raise InvalidMessage("the key of a record must be text or bytes")


def _text(raw: bytes | None) -> str | bytes | None:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _number(raw: bytes | None) -> int | str | bytes | None:
    # What would be written differently stays as it is: with zeros before it, or more than 18 digits.
    if raw is not None and raw.isdigit() and len(raw) < 19 and (raw[:1] != b"0" or raw == b"0"):
        return int(raw)
    return _text(raw)


def _is_plain(value: object) -> bool:
    return value is None or (isinstance(value, str | bytes | int) and not isinstance(value, bool))


def _check_name(name: object) -> None:
    # The client hands names to C, where they end at a NUL.
    if not isinstance(name, str) or "\0" in name or not _is_utf8(name):
        raise InvalidMessage("a header's name cannot be written to Kafka")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else dump(tag(value))
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        raise InvalidMessage("a header cannot be written to Kafka") from None
