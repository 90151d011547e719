"""Filling a queue fast: publishes made once with pika's encoder, written in large pieces, all confirmed.

A client that encodes every message anew would need longer to fill the queue than the consumers to empty it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pika import frame

from support.amqp import content, method, spec

CHANNEL: Final = 1
AT_ONCE: Final = 500
AHEAD: Final = 5_000
TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """What the messages of a queue look like. The bodies take turns.

    For RabbitMQ with properties, and arguments of the queue; for Redis with the field that has the body, and
    so many entries before them that another consumer holds.
    """

    bodies: tuple[bytes, ...]
    properties: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    body_field: str = "data"
    held: int = 0


def fill(url: str, queue: str, load: Load, count: int) -> None:
    """Put `count` persistent messages on the queue; returns when the broker has confirmed them all."""
    with _Publisher(url) as publisher:
        publisher.publish(queue, load, count)


class _Publisher:
    """One connection that only publishes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), TIMEOUT)
        self._buffer = b""
        self._confirmed = 0
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        self._socket.sendall(frame.ProtocolHeader().marshal())
        self._expect(spec.Connection.Start)
        self._tell(0, spec.Connection.StartOk({}, "PLAIN", f"\0{user}\0{password}", "en_US"))
        tune = self._expect(spec.Connection.Tune)
        self._tell(0, spec.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._tell(0, spec.Connection.Open(unquote(parts.path[1:])))
        self._expect(spec.Connection.OpenOk)
        self._tell(CHANNEL, spec.Channel.Open())
        self._expect(spec.Channel.OpenOk)
        self._tell(CHANNEL, spec.Confirm.Select())
        self._expect(spec.Confirm.SelectOk)

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def publish(self, queue: str, load: Load, count: int) -> None:
        publish = spec.Basic.Publish(exchange="", routing_key=queue)
        properties = {"delivery_mode": 2, **load.properties}
        encoded = [b"".join(content(CHANNEL, publish, body, **properties)) for body in load.bodies]
        batch = _batch(encoded)
        sent = 0
        while sent < count:
            size = min(len(batch), count - sent)
            self._socket.sendall(b"".join(batch[:size]))
            sent += size
            self._await_confirms(sent - AHEAD)
        self._await_confirms(count)

    def _await_confirms(self, count: int) -> None:
        while self._confirmed < count:
            self._confirmed = max(self._confirmed, self._expect(spec.Basic.Ack).delivery_tag)

    def _tell(self, channel: int, what: Any) -> None:
        self._socket.sendall(method(channel, what))

    def _expect(self, kind: Any) -> Any:
        """The next method, which must be of this kind."""
        while True:
            size, decoded = frame.decode_frame(self._buffer)
            if decoded is None:
                more = self._socket.recv(65_536)
                if not more:
                    raise RuntimeError("the broker closed the connection while the queue was filled")
                self._buffer += more
                continue
            self._buffer = self._buffer[size:]
            said = getattr(decoded, "method", None)
            if isinstance(said, kind):
                return said
            # A heartbeat is no method; anything else that was not asked for is bad news.
            if said is not None:
                raise RuntimeError(f"the broker answered {said.NAME} while the queue was filled")


def _batch(encoded: Sequence[bytes]) -> list[bytes]:
    """Enough of them for one write, each as often as the others."""
    return list(encoded) * max(1, AT_ONCE // len(encoded))
