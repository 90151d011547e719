"""One connection to a Redis server: redis-py connects, by TCP and TLS; then nothing on it ever blocks.

Rule 1: what is asked is buffered by `put` and sent by `flush`; answers are taken by `take`, in the order of
        the questions, as raw values (RESP2): bytes, numbers, lists, None, and errors as values. So questions
        travel together, and a question whose answer is far off delays no other connection.
Rule 2: redis-py's own retries are off: every loss is seen (S3).
Rule 3: `take` reads until the socket is dry, TLS records included: what the parser has swallowed makes no
        descriptor readable.
Rule 4: what came before the end of a connection is handed out before the end is told.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import hiredis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from chronicle.errors import ChronicleError, ConnectionLost, ProtocolFault
from chronicle.transports.hosts import Host
from chronicle.transports.redis.address import Address
from chronicle.transports.redis.answers import concerning, lost, refusal, untrusted, why_not_connected
from chronicle.transports.seam import never, nothing

Answer: TypeAlias = Any  # what hiredis makes of it
Argument: TypeAlias = str | bytes | int

READ: Final = 256 * 1024  # bytes at a time
CLOSED: Final = "the server closed the connection"
TAIL: Final = 256  # bytes that `ends_with` can compare
LOGIN_TIMEOUT: Final = 5.0  # for the answers while logging in
ANSWER_TIMEOUT: Final = 10.0  # without an answer for so long, the server is as good as gone
TURN: Final = 0.25  # seconds between two looks at what goes on beside a wait


class Verified(SSLConnection):
    """redis-py's connection with a TLS context of ours (transports/tls.py)."""

    def __init__(self, context: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)
        self._context = context

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(sock, server_hostname=self.host)


class Wire:
    """An open connection, used by one thread."""

    def __init__(
        self,
        address: Address,
        host: Host,
        context: ssl.SSLContext | None,
        *,
        name: str = "",
        login: bool = True,
        db: int = 0,
        stopping: Callable[[], bool] = never,
    ) -> None:
        """Connect and log in; raises BrokerRefused or a BrokerError. A stop ends every wait but the first."""
        self.address = address
        options: dict[str, Any] = {
            "host": host.name,
            "port": host.port,
            "socket_connect_timeout": address.timeout,
            "socket_timeout": address.timeout,  # of TLS
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,  # CLIENT SETINFO, for which an ACL user would need a permission
        }
        plain = Connection(**options) if context is None else Verified(context, **options)
        try:
            plain.connect()
        except (exceptions.RedisError, OSError) as error:
            raise why_not_connected(error, address) from None
        connected = plain._get_socket()
        assert connected is not None
        connected.setblocking(False)
        self._plain = plain
        self._socket = connected
        self._reader = hiredis.Reader(
            protocolError=exceptions.InvalidResponse, replyError=exceptions.ResponseError
        )
        self._out: list[bytes] = []
        self._unsent = memoryview(b"")
        self._unread: deque[bytes] = deque()  # taken off the socket by `swallow`, not yet given to the parser
        self._tail = b""
        self._asked: deque[float] = deque()  # when, of each question without an answer
        self._moved = monotonic()  # when something was last sent or came: a long answer is an answer
        self._end = ""  # what the socket said when it ended
        self.closed = False
        try:
            self._log_in(login, db, name, stopping)
        except ConnectionLost as error:
            # TLS 1.3 tells a client only now that its certificate was not enough.
            raise (context and untrusted(self._end, address)) or error from None
        except BaseException:
            self.close()
            raise

    def _log_in(self, login: bool, db: int, name: str, stopping: Callable[[], bool]) -> None:
        """Here and not by redis-py, which would wait for a silent server whatever happens."""
        questions: list[tuple[Argument, ...]] = []
        if login and (self.address.user or self.address.password):
            user = (self.address.user,) if self.address.user else ()
            questions.append(("AUTH", *user, self.address.password))
        if db:
            questions.append(("SELECT", db))
        needed = len(questions)
        if name:
            # For CLIENT LIST; an ACL user without the permission goes without a name.
            questions.append(("CLIENT", "SETNAME", "".join(c if "!" <= c <= "~" else "-" for c in name)))
        if not questions:
            return
        for answer in self.ask(*questions, timeout=LOGIN_TIMEOUT, stopping=stopping)[:needed]:
            if isinstance(answer, Exception):
                raise why_not_connected(answer, self.address)

    # --- asking -------------------------------------------------------------------------------------

    def put(self, *command: Argument) -> None:
        """Ask this with the next `flush`."""
        self.put_silent(*command)
        self._asked.append(monotonic())

    def put_silent(self, *command: Argument) -> None:
        """Send this with the next `flush`; it has no answer of its own (SUBSCRIBE)."""
        packed: tuple[Any] = command  # type: ignore[assignment]  # its stub allows only one argument
        self._out.append(hiredis.pack_command(packed))

    def flush(self) -> None:
        """Send what was put, as far as the socket takes it; the rest goes with the next call."""
        if not self._out and not self._unsent:
            return
        data = memoryview(b"".join((self._unsent, *self._out))) if self._out else self._unsent
        self._out.clear()
        try:
            while data:
                data = data[self._socket.send(data) :]
                self._moved = monotonic()
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            raise self._gone(error) from None
        finally:
            self._unsent = data

    def take(self, most: int = 1 << 30) -> list[Answer]:
        """What has come; at most so many, and then the socket is not read further. Raises ConnectionLost."""
        answers: list[Answer] = []
        reader = self._reader
        try:
            while True:
                while len(answers) < most and (answer := reader.gets()) is not False:
                    answers.append(answer)
                if len(answers) >= most or not self._read(quietly=bool(answers)):
                    return answers
        except exceptions.InvalidResponse:
            self.close()
            raise ProtocolFault(
                f"{self.address.place}: the server sent what is not Redis' protocol"
            ) from None
        finally:
            for _ in range(min(len(answers), len(self._asked))):
                self._asked.popleft()

    def _read(self, *, quietly: bool) -> bool:
        """Feed the parser; False when the socket is dry, or has ended and nobody is to be told yet."""
        if self._unread:
            self._reader.feed(self._unread.popleft())
            return True
        try:
            data = self._recv()
        except ConnectionError as error:
            if quietly:
                return False  # the next call finds it again
            raise self._gone(error) from None
        if data:
            self._reader.feed(data)
        return bool(data)

    def _recv(self) -> bytes:
        """What the socket has, at most one portion; nothing when it is dry. Raises ConnectionError."""
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError as error:
            self._end = str(error)
            raise ConnectionError(error.errno, error.strerror) from None
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, CLOSED)
        self._moved = monotonic()
        return data

    def swallow(self) -> bool:
        """Take all that has come off the socket, for later calls of `take`; False when that was the end.

        It is not parsed, so it needs no more memory than it has bytes.
        """
        try:
            while data := self._recv():
                self._unread.append(data)
                self._tail = (self._tail + data)[-TAIL:]
        except ConnectionError:
            return False
        return True

    def ends_with(self, text: bytes) -> bool:
        """Whether the last bytes that were swallowed are these."""
        return self._tail.endswith(text)

    @property
    def waiting(self) -> int:
        """How many questions have no answer yet."""
        return len(self._asked)

    @property
    def writing(self) -> bool:
        """Whether something is left to send."""
        return bool(self._unsent)

    def look(self, longest: float = ANSWER_TIMEOUT) -> None:
        """Raise ConnectionLost if the oldest question has waited longer than this for its answer."""
        if self._asked and monotonic() - max(self._asked[0], self._moved) > longest:
            raise self._gone(TimeoutError())

    def fileno(self) -> int:
        return self._socket.fileno()

    # --- for those without a pump -------------------------------------------------------------------

    def ask(
        self,
        *commands: tuple[Argument, ...],
        timeout: float = ANSWER_TIMEOUT,
        stopping: Callable[[], bool] = never,
        meanwhile: Callable[[], None] = nothing,
    ) -> list[Answer]:
        """Ask all of these at once and wait for the answers, errors as values; raises ConnectionLost.

        `meanwhile` is called at least every quarter of a second; a stop ends the wait as a loss.
        """
        for command in commands:
            self.put(*command)
        self.flush()
        answers: list[Answer] = []
        asked = monotonic()
        while len(answers) < len(commands):
            left = max(asked, self._moved) + timeout - monotonic()
            if left <= 0 or stopping():
                raise self._gone(TimeoutError())
            self.wait(min(left, TURN))
            self.flush()
            answers += self.take()
            meanwhile()
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, Exception):
                concerning(answer, command)
        return answers

    def wait(self, seconds: float) -> None:
        """Sleep until there is something to read, or room to write what is left, at most this long."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        poller.poll(max(0.0, seconds) * 1000)

    def value(self, answer: Answer) -> Answer:
        """The answer, if it is no error; otherwise raises BrokerRefused or ConnectionLost."""
        if isinstance(answer, Exception):
            raise self.trouble(answer)
        return answer

    def trouble(self, error: Exception) -> ChronicleError:
        """What an error in an answer means for this connection."""
        return refusal(error, self.address) or lost(error, self.address)

    def close(self) -> None:
        """Hang up. May be called twice."""
        self.closed = True
        with suppress(OSError):
            self._socket.close()
        with suppress(Exception):  # it would shut down a socket that is closed
            self._plain.disconnect()

    def _gone(self, error: Exception) -> ConnectionLost:
        self.close()
        return lost(error, self.address)
