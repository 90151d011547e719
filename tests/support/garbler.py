"""A way to RabbitMQ on which bytes that nobody sent come right after the consumer was accepted."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from support.amqp import method, spec

# What a channel of this number gets; in pieces, because it may be more than fits into memory.
Noise: TypeAlias = Callable[[int], Iterable[bytes]]


class Garbler:
    """Passes everything on, and puts `noise` into each connection behind its `basic.consume-ok`."""

    def __init__(self, url: str, noise: Noise) -> None:
        parts = urlsplit(url)
        self._url = parts
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5672)
        self._noise = noise
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        user = self._url.netloc.rpartition("@")[0]
        port = self._listener.getsockname()[1]
        return urlunsplit(self._url._replace(netloc=f"{user}@127.0.0.1:{port}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # A thread that waits in accept is woken by shutdown, not by close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._target)
                for source, sink, replies in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._carry, args=(source, sink, replies), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if replies:
                    self._send_garbled(data, sink)
                else:
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _send_garbled(self, data: bytes, sink: socket.socket) -> None:
        at = data.find(_CONSUME_OK)
        if at < 0:
            sink.sendall(data)
            return
        # In front of the method stand the frame's kind, channel and size; behind it its end.
        end = at + int.from_bytes(data[at - 4 : at], "big") + 1
        sink.sendall(data[:end])
        for piece in self._noise(int.from_bytes(data[at - 6 : at - 4], "big")):
            sink.sendall(piece)
        sink.sendall(data[end:])


_CONSUME_OK: Final = method(1, spec.Basic.ConsumeOk(""))[7:11]
