"""Publishing with frames made by hand: header tables that no client library would encode.

pika opens the channel, asks for confirmations and reads them; only the content is ours.
"""

from __future__ import annotations

from struct import pack
from typing import Any, Final

from support.amqp import FRAME_MAX, bodies, method, spec
from support.queues import Queues

HEADERS_FLAG: Final = 1 << 13
MODE_FLAG: Final = 1 << 12
PERSISTENT: Final = b"\x02"


def short(text: bytes) -> bytes:
    """A name of a table, behind one octet of length."""
    return pack(">B", len(text)) + text


def long(content: bytes) -> bytes:
    """A text or a table, behind four octets of length."""
    return pack(">I", len(content)) + content


def nested(levels: int) -> bytes:
    """The entries of a table that holds a table that holds a table."""
    entries = b""
    for _ in range(levels):
        entries = short(b"t") + b"F" + long(entries)
    return entries


def publish(queues: Queues, queue: str, body: bytes, entries: bytes) -> None:
    """Put a persistent message with these header entries on a queue; fails unless the broker takes it."""
    content = pack(">HHQH", 60, 0, len(body), HEADERS_FLAG | MODE_FLAG) + long(entries) + PERSISTENT
    assert len(content) < FRAME_MAX, "a content header is one frame"
    with queues.channel() as channel:
        channel.confirm_delivery()
        connection: Any = channel.connection
        number = channel.channel_number
        confirmed: list[Any] = []
        channel._impl.add_callback(confirmed.append, [spec.Basic.Ack], one_shot=True)
        frames = [
            method(number, spec.Basic.Publish(exchange="", routing_key=queue)),
            pack(">BHI", 2, number, len(content)) + content + b"\xce",
            *bodies(number, body),
        ]
        connection._impl._output_marshaled_frames(frames)
        while not confirmed:
            connection.process_data_events(time_limit=0.01)
