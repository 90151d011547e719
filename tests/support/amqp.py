"""Frames as a broker sends them, made by pika's own encoder."""

from __future__ import annotations

from typing import Any

from pika import frame
from pika import spec as pika_spec

spec: Any = pika_spec  # pika does not annotate its generated half

FRAME_MAX = 131_072

# One value for each basic property there is.
EVERY_PROPERTY: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "event",
    "user_id": "guest",
    "app_id": "proca",
    "cluster_id": "",
}


def method(channel: int, what: Any) -> bytes:
    return frame.Method(channel, what).marshal()


def header(channel: int, body_size: int, **properties: Any) -> bytes:
    return frame.Header(channel, body_size, spec.BasicProperties(**properties)).marshal()


def bodies(channel: int, body: bytes, largest: int = FRAME_MAX - 8) -> list[bytes]:
    return [frame.Body(channel, body[at : at + largest]).marshal() for at in range(0, len(body), largest)]


def content(
    channel: int, what: Any, body: bytes, largest: int = FRAME_MAX - 8, **properties: Any
) -> list[bytes]:
    """All frames of a method that carries a content."""
    return [
        method(channel, what),
        header(channel, len(body), **properties),
        *bodies(channel, body, largest),
    ]


def heartbeat() -> bytes:
    return frame.Heartbeat().marshal()


def taken_apart(data: bytes) -> list[Any]:
    """What pika reads out of whole frames; fails when a piece of one is left over."""
    frames = []
    while data:
        size, decoded = frame.decode_frame(data)
        assert decoded is not None, "half a frame"
        frames.append(decoded)
        data = data[size:]
    return frames
