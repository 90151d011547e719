"""A delivery written as JSON: the line of a capture, of a dead-letter export, and what `replay` reads.

    {"transport": "rabbitmq", "queue": "q", "redelivered": false,
     "exchange": "x", "routing_key": "k", "delivery_tag": 7,                       the broker's own facts
     "body": {"base64": "e30=", "text": "{}", "json": {}},
     "headers": {}, "properties": {}, "metadata": {"timestamp": 1772446272000, "counted": 0}}

Rule 1: record and delivery convert both ways without loss. Only the transport's `handle` stays behind: it
        means nothing once the connection is gone.
Rule 2 (D-14): bytes are one binary object, `base64` always, `text` if they are UTF-8, `json` if they parse.
        The base64 is authoritative; the other two are for readers and are not read back.
Rule 3: body and headers have the names their broker gives them: `body`, Redis `payload`, Kafka `value`;
        `headers`, Redis `attributes`. A record that says `headers` is read for every broker.
Rule 4: what a caller adds about the delivery goes under `chronicle` and is not read back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from chronicle.core.body import MAX_BODY, parse
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.json_tags import from_base64, tag, to_base64, untag
from chronicle.errors import InvalidMessage

# Names in a record that are not the broker's facts. A fact with such a name goes under `origin`.
RESERVED: Final = frozenset(
    ("transport", "queue", "redelivered", "body", "payload", "value", "headers", "attributes", "properties",
     "metadata", "chronicle", "origin")
)  # fmt: skip


def to_record(
    delivery: Delivery, extra: Mapping[str, Any] | None = None, max_body: int = MAX_BODY
) -> dict[str, Any]:
    """The delivery as a JSON object; `extra` is what the caller adds, such as a reason.

    A body larger than `max_body` is in it, but not as text and JSON too.
    """
    envelope = delivery.envelope
    metadata: dict[str, Any] = {"timestamp": delivery.timestamp, "counted": delivery.counted}
    if "stream" in delivery.origin and "id" in delivery.origin:
        metadata["stream_id"] = tag(delivery.origin["id"])
    if envelope.fault:
        metadata["fault"] = tag(envelope.fault)
    record: dict[str, Any] = {
        "transport": delivery.transport,
        "queue": tag(delivery.queue),
        "redelivered": delivery.redelivered,
    }
    crowded = {}
    for name, fact in delivery.origin.items():
        if name in RESERVED or name.startswith("$"):
            crowded[name] = fact
        elif isinstance(fact, bytes):
            record[name] = binary(fact)
        elif isinstance(fact, Mapping) and "base64" in fact:
            record[name] = {"$map": [[tag(key), tag(item)] for key, item in fact.items()]}
        else:
            record[name] = tag(fact)
    if crowded:
        record["origin"] = tag(crowded)
    record[body_name(delivery.transport)] = binary(delivery.body, max_body)
    record[headers_name(delivery.transport)] = tag(envelope.headers)
    record["properties"] = tag(envelope.properties)
    record["metadata"] = metadata
    if extra:
        record["chronicle"] = tag(extra)
    return record


def from_record(record: Mapping[str, Any]) -> Delivery:
    """The delivery a record was made from; raises ValueError for anything that is not a record."""
    if not is_record(record):
        raise ValueError("not a record: it needs transport, queue, and the body as base64")
    try:
        return _delivery(record)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _delivery(record: Mapping[str, Any]) -> Delivery:
    transport = record["transport"]
    metadata = _read(record.get("metadata", {}), dict, "metadata")
    origin = {
        name: _bytes(fact, name) if isinstance(fact, dict) and "base64" in fact else untag(fact)
        for name, fact in record.items()
        if name not in RESERVED
    }
    headers = headers_name(transport)
    if headers not in record:
        headers = "headers"
    return Delivery(
        _bytes(record[body_name(transport)], body_name(transport)),
        queue=_read(untag(record["queue"]), str, "queue"),
        transport=transport,
        redelivered=_read(record.get("redelivered", False), bool, "redelivered"),
        counted=_read(metadata.get("counted", 0), int, "metadata.counted"),
        timestamp=_read(metadata.get("timestamp"), int, "metadata.timestamp", optional=True),
        origin=origin | _read(untag(record.get("origin", {})), dict, "origin"),
        envelope=Envelope(
            _read(untag(record.get(headers, {})), dict, headers),
            _read(untag(record.get("properties", {})), dict, "properties"),
            _read(untag(metadata.get("fault", "")), str, "metadata.fault"),
        ),
    )


def is_record(value: object) -> bool:
    """Whether this JSON value is a record and not a message of its own."""
    if not isinstance(value, Mapping) or "queue" not in value:
        return False
    transport = value.get("transport")
    if not isinstance(transport, str):
        return False
    body = value.get(body_name(transport))
    return isinstance(body, Mapping) and "base64" in body


def dump(record: Mapping[str, Any]) -> bytes:
    """The record as one line of JSON, without the newline."""
    try:
        return orjson.dumps(record)
    except TypeError:
        # A body may contain integers beyond 64 bits, and headers may be nested deeper than orjson writes.
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def binary(raw: bytes, most: int = MAX_BODY) -> dict[str, Any]:
    """Bytes as base64, and as text and JSON if they can be read and are no more than `most`."""
    shown: dict[str, Any] = {"base64": to_base64(raw)}
    if len(raw) > most:
        return shown
    try:
        shown["text"] = raw.decode()
        shown["json"] = parse(raw, most)
    except (UnicodeDecodeError, InvalidMessage):
        pass
    return shown


def body_name(transport: str) -> str:
    """What this kind of broker calls the body."""
    if transport == "kafka":
        return "value"
    return "payload" if transport.startswith("redis") else "body"


def headers_name(transport: str) -> str:
    """What this kind of broker calls the headers."""
    return "attributes" if transport.startswith("redis") else "headers"


def _bytes(value: Mapping[str, Any], name: str) -> bytes:
    try:
        return from_base64(value["base64"])
    except (TypeError, ValueError):
        raise ValueError(f"the record's {name} is not base64") from None


def _read(value: Any, kind: type, name: str, *, optional: bool = False) -> Any:
    if (optional and value is None) or type(value) is kind:
        return value
    raise ValueError(f"the record's {name} has the wrong type")
