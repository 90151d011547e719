"""RabbitMQ's management API, as far as a consumer needs it: a few GETs, nothing else.

Rule 1: only the host that the operator named is asked: no proxy, no redirect, no guess.
Rule 2: certificates are verified; the size of an answer is bounded, and so is the wait: for one answer, and
        for all of them together. The time limit of a socket is one for each of its reads, and a byte now and
        then would keep it from ever ending; so each read gets only what is left of the time.
Rule 3: an error names what went wrong; never a password, never a piece of a URL.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from chronicle.core.frozen import frozen
from chronicle.errors import SettingError
from chronicle.transports.hosts import is_loopback
from chronicle.transports.rabbitmq.address import Address

if TYPE_CHECKING:
    from http.client import HTTPConnection

EXAMPLE: Final = "write it as http://host:15672 or https://host:15671"
PORTS: Final = {"http": 15672, "https": 15671}
TIMEOUT: Final = 4.0  # seconds for one answer
PATIENCE: Final = 8.0  # seconds for all answers
LARGEST: Final = 4 * 1024 * 1024  # bytes of one answer
PIECE: Final = 64 * 1024


LATE: Final = "no answer in time"


class NoAnswer(Exception):
    """The API gave no usable answer; the text says why."""


@frozen
class Management:
    """Where the API is and who asks. The password never shows."""

    host: str
    port: int
    tls: bool
    prefix: str  # of every path
    user: str
    password: str = field(repr=False)
    vhost: str
    own: bool = False  # user and password came with this URL

    @property
    def readable(self) -> bool:
        """Whether others on the network could read the password."""
        return not self.tls and not is_loopback(self.host)


def management_of(url: str, broker: Address) -> Management:
    """Read a management URL; user and password are the broker's unless it has its own."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingError("--management-url cannot be read: its host or port is wrong", EXAMPLE) from None
    if parts.scheme not in PORTS or not host:
        raise SettingError("--management-url is not an http or https URL with a host", EXAMPLE)
    if parts.query or parts.fragment:
        raise SettingError("--management-url has a ? or # in it", EXAMPLE)
    own = bool(parts.username)
    return Management(
        host=host,
        port=port or PORTS[parts.scheme],
        tls=parts.scheme == "https",
        prefix=parts.path.rstrip("/"),
        user=unquote(parts.username or "") if own else broker.user,
        password=unquote(parts.password or "") if own else broker.password,
        vhost=broker.vhost,
        own=own,
    )


class Api:
    """Questions to one API; each raises NoAnswer when it cannot be answered.

    `deadline` is that of all questions, on the clock.
    """

    def __init__(
        self,
        management: Management,
        context: ssl.SSLContext | None = None,
        *,
        deadline: float | None = None,
        timeout: float = TIMEOUT,
        largest: int = LARGEST,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._management = management
        self._context = context
        self._timeout = timeout
        self._largest = largest
        self._clock = clock
        self._deadline = clock() + PATIENCE if deadline is None else deadline

    def queue(self, name: str) -> dict[str, Any] | None:
        """A queue with its arguments and policy; None if there is none."""
        return self._object("queues", name)

    def exchange(self, name: str) -> dict[str, Any] | None:
        return self._object("exchanges", name)

    def bindings(self, exchange: str) -> list[dict[str, Any]]:
        """Where this exchange sends messages."""
        found = self._get(f"{self._path('exchanges', exchange)}/bindings/source")
        if not isinstance(found, list):
            raise NoAnswer("its answer is not that of a management API")
        return [entry for entry in found if isinstance(entry, dict)]

    def _object(self, kind: str, name: str) -> dict[str, Any] | None:
        found = self._get(self._path(kind, name))
        if found is None or (isinstance(found, dict) and found.get("name") == name):
            return found
        raise NoAnswer("its answer is not that of a management API")

    def _path(self, kind: str, name: str) -> str:
        vhost, name = quote(self._management.vhost, safe=""), quote(name, safe="")
        return f"{self._management.prefix}/api/{kind}/{vhost}/{name}"

    def _get(self, path: str) -> Any:
        """What the API says, in time; None for a 404."""
        # Slow to import, and every `consume` imports this module to check its options.
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        deadline = min(self._deadline, self._clock() + self._timeout)
        left = deadline - self._clock()
        if left <= 0:
            raise NoAnswer(LATE)
        where = self._management
        connection = (
            HTTPSConnection(where.host, where.port, timeout=left, context=self._context)
            if where.tls
            else HTTPConnection(where.host, where.port, timeout=left)
        )
        secret = base64.b64encode(f"{where.user}:{where.password}".encode()).decode()
        try:
            connection.connect()
            with connection.sock as sock:
                timed: Any = _TimedSocket(sock, lambda: deadline - self._clock())
                connection.sock = timed
                connection.request("GET", path, headers={"Authorization": f"Basic {secret}"})
                return self._answer(connection)
        except ssl.SSLCertVerificationError as error:
            raise NoAnswer(f"its certificate is not trusted: {error.verify_message}") from None
        except TimeoutError:
            raise NoAnswer(LATE) from None
        except OSError as error:
            raise NoAnswer((error.strerror or "no answer, and the connection was closed").lower()) from None
        except (HTTPException, ValueError, RecursionError):
            raise NoAnswer("its answer cannot be read") from None
        finally:
            connection.close()

    def _answer(self, connection: HTTPConnection) -> Any:
        response = connection.getresponse()
        if response.status == 404:
            return None
        if response.status in (401, 403):
            raise NoAnswer("it refused this user, who needs the management tag")
        if response.status != 200:
            raise NoAnswer(f"it answered with HTTP status {response.status}")
        body = bytearray()
        while piece := response.read1(PIECE):
            body += piece
            if len(body) > self._largest:
                raise NoAnswer("its answer is too long")
        return json.loads(body)


class _TimedSocket:
    """As much of a socket as http.client needs; every call has only what is left of the time."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left

    def in_time(self) -> socket.socket:
        left = self._left()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock

    def sendall(self, data: bytes) -> None:
        self.in_time().sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedStream(self))

    def close(self) -> None:
        """The owner of the socket closes it: http.client lets go before it has read the answer."""


class _TimedStream(io.RawIOBase):
    """What such a socket receives."""

    def __init__(self, sock: _TimedSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.in_time().recv_into(buffer)
