"""One HTTP POST on a persistent connection, with a deadline for the whole response.

http.client's own timeout restarts with every read, so a very slow server could block a worker forever.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final, cast

LARGEST_ANSWER: Final = 65536


class NoAnswerError(ConnectionError):
    """The connection ended before there was a response."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to post to."""

    tls: ssl.SSLContext | None
    host: str
    port: int
    target: str
    timeout: float

    def __repr__(self) -> str:
        """Without the target, which may be a secret: this ends up in tracebacks."""
        return f"<Endpoint {self.host!r}>"


@dataclass(frozen=True, slots=True)
class Answer:
    """The response; `keep` if the connection can be used again."""

    status: int
    retry_after: str | None
    keep: bool


class _TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class _TimedSocket:
    """The one method of a socket that http.client's response uses."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def makefile(self, mode: str) -> BinaryIO:
        assert mode == "rb"
        return cast(BinaryIO, io.BufferedReader(_TimedReader(self._sock, self._deadline)))


def connect(endpoint: Endpoint) -> http.client.HTTPConnection:
    """A connection that is opened by its first request."""
    if endpoint.tls is None:
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=endpoint.timeout)
    return http.client.HTTPSConnection(
        endpoint.host, endpoint.port, timeout=endpoint.timeout, context=endpoint.tls
    )


def post(
    connection: http.client.HTTPConnection, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]
) -> Answer:
    """Send the body and read the response."""
    if connection.sock is None:
        connection.connect()
    sock: socket.socket = connection.sock
    sock.settimeout(endpoint.timeout)
    try:
        connection.request("POST", endpoint.target, body, headers)
        deadline = time.monotonic() + endpoint.timeout
        connection.response_class = partial(_timed_response, deadline)  # type: ignore[assignment]
        response = connection.getresponse()
    except (ConnectionError, http.client.BadStatusLine, ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise NoAnswerError(type(error).__name__) from None
    return Answer(response.status, response.getheader("Retry-After"), _drain(response))


def _timed_response(deadline: float, sock: socket.socket, method: str) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(cast(socket.socket, _TimedSocket(sock, deadline)), method=method)


def _drain(response: http.client.HTTPResponse) -> bool:
    """Read a short response to its end, so that the connection can be used again; False if it cannot."""
    try:
        response.read(LARGEST_ANSWER)
        return response.isclosed() and not response.will_close
    except (OSError, http.client.HTTPException):
        return False  # the status is known and that is what counts
    finally:
        response.close()
