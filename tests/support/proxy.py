"""A TCP proxy on loopback that spoils the way to a broker on demand.

Rule 1: the mode counts for every connection, old and new, from the next piece of data on.
Rule 2: a black hole holds what it has and delivers it when the mode changes; dropped replies are gone.
Rule 3: what is said in plain text can be lost by its word: the request arrives, its reply never does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from enum import StrEnum
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

DEFAULT_PORTS: Final = {"amqp": 5672, "amqps": 5671, "redis": 6379, "rediss": 6379, "kafka": 9092}
# Lingering for zero seconds turns a close into a reset.
RESET: Final = struct.pack("ii", 1, 0)
CARRIED_OUT: Final = 0.02


class Mode(StrEnum):
    """What the proxy does with the data it gets."""

    PASS = "pass"
    BLACK_HOLE = "black-hole"
    DELAY = "delay"
    SLICE = "slice"
    DROP_REPLIES = "drop-replies"


class Proxy:
    """Stands before the broker of a URL; `delay` is the pause before every piece in DELAY mode."""

    def __init__(self, url: str, *, delay: float = 0.2) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORTS[parts.scheme])
        self._delay = delay
        self._mode = Mode.PASS
        self._word = b""
        self._to_lose = 0
        self.lost = 0  # replies lost by `lose_replies`
        self.exchanges = 0  # times that a client spoke after it had an answer, on whatever connection
        self._answered = True
        self._change = threading.Condition()
        self._lines: set[_Line] = set()
        self._listener: socket.socket | None = None
        self._port = 0
        self.accept()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        with self._change:
            return len(self._lines)

    def url_for(self, url: str) -> str:
        """The same URL, by way of the proxy; the host's name stays, for the sake of certificates."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        place = f"{parts.hostname or '127.0.0.1'}:{self._port}"
        return urlunsplit(parts._replace(netloc=f"{user}@{place}" if user else place))

    def set(self, mode: Mode) -> None:
        """Treat all data like this from now on."""
        with self._change:
            self._mode = mode
            self._change.notify_all()

    def lose_replies(self, word: bytes, times: int = 1) -> None:
        """Pass the next so many requests with this word on, and reset each connection instead of a reply.

        That is what a network does that breaks in between: the server has carried the request out, and
        nobody was told. Whatever else the connection carries at that moment is lost with it. A word that
        arrives in two pieces is not found.
        """
        with self._change:
            self._word, self._to_lose = word, times

    def cut(self) -> int:
        """Reset every open connection; how many there were. New ones are taken as before."""
        with self._change:
            lines, self._lines = self._lines, set()
            self._change.notify_all()
        for line in lines:
            line.reset()
        return len(lines)

    def refuse(self) -> None:
        """Take no new connections: the port is closed. Open ones go on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            _hang_up(listener)

    def accept(self) -> None:
        """Take connections, on the port it always had."""
        if self._listener is None:
            # create_server allows reuse: open connections still hold the port after `refuse`.
            self._listener = listener = socket.create_server(("127.0.0.1", self._port), backlog=64)
            self._port = int(listener.getsockname()[1])
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Close the port and reset what is open."""
        self.refuse()
        self.cut()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10.0)
            except OSError:
                _hang_up(client)
                continue
            server.settimeout(None)
            line = _Line(client, server)
            # All at once: a cut in between would find a line whose threads do not run yet.
            with self._change:
                self._lines.add(line)
                for replies in (False, True):
                    thread = threading.Thread(target=self._carry, args=(line, replies), daemon=True)
                    line.threads.append(thread)
                    thread.start()

    def _carry(self, line: _Line, replies: bool) -> None:
        source, sink = (line.server, line.client) if replies else (line.client, line.server)
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and self._forward(line, data, sink, replies):
                pass
        with self._change:
            ours = line in self._lines
            self._lines.discard(line)
            self._change.notify_all()
        if ours:
            _hang_up(line.client)
            _hang_up(line.server)

    def _forward(self, line: _Line, data: bytes, sink: socket.socket, replies: bool) -> bool:
        """Treat one piece of data as the mode says; False when its connection was cut meanwhile."""
        with self._change:
            self._change.wait_for(lambda: self._mode is not Mode.BLACK_HOLE or line not in self._lines)
            mode = self._mode
            if line not in self._lines:
                return False
            if not replies and self._to_lose and self._word in data and not line.deaf:
                line.deaf = True
                self._to_lose -= 1
            deaf = line.deaf and replies
            self.exchanges += self._answered and not replies
            self._answered = replies
        if deaf:
            self._lose(line)
            return False
        if mode is Mode.DROP_REPLIES and replies:
            return True
        if mode is Mode.DELAY:
            time.sleep(self._delay)
            with contextlib.suppress(BlockingIOError):  # what was sent meanwhile is no later than this
                data += (line.server if replies else line.client).recv(65536, socket.MSG_DONTWAIT)
        if mode is Mode.SLICE:
            for byte in data:
                sink.sendall(bytes((byte,)))
        else:
            sink.sendall(data)
        return True

    def _lose(self, line: _Line) -> None:
        # What came may be the reply to an earlier request. The one that counts has been sent, and a server
        # that is neither frozen nor loaded has carried it out after this.
        time.sleep(CARRIED_OUT)
        with self._change:
            if line not in self._lines:
                return
            self._lines.discard(line)
            self.lost += 1
            self._change.notify_all()
        # From another thread: a line waits for its own threads before it is closed.
        threading.Thread(target=line.reset, daemon=True).start()


class _Line:
    """One connection: both its sockets and the two threads that carry data between them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.threads: list[threading.Thread] = []
        self.deaf = False  # the next reply is lost, and the connection with it
        for end in (client, server):
            # Slices are to leave one by one, not collected by the kernel.
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self) -> None:
        # A socket is closed only when no thread waits in it. Shutting the reading side wakes a reader
        # without a goodbye to the peer; a blocked writer needs the other side shut as well.
        for how in (socket.SHUT_RD, socket.SHUT_RDWR):
            for end in (self.client, self.server):
                with contextlib.suppress(OSError):
                    end.shutdown(how)
            for thread in self.threads:
                thread.join(0.5)
            if not any(thread.is_alive() for thread in self.threads):
                break
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()


def _hang_up(end: socket.socket) -> None:
    # A thread that waits in accept or recv is woken by shutdown, not by close.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
