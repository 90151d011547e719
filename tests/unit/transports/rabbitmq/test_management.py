"""How the management API is asked: one host, verified, bounded, and nothing told but the reason (Z4, Z9)."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic

import pytest

from chronicle.transports.rabbitmq.address import address_of
from chronicle.transports.rabbitmq.management import Api, NoAnswer, management_of
from chronicle.transports.seam import Tls
from chronicle.transports.tls import tls_context
from support.certs import make_certs
from support.waiting import wait_for

BROKER = address_of("amqp://me:secret@localhost/a%2Fb")


class Handler(BaseHTTPRequestHandler):
    """Answers by the name of the queue that is asked for."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        name = self.path.rpartition("/")[2]
        match name:
            case "moved":
                self.answer(302, b"", location="/api/queues/a%2Fb/found")
            case "missing":
                self.answer(404, b"{}")
            case "wrong":
                self.answer(200, b'{"name": "another"}')
            case "broken":
                self.answer(200, b"<html>")
            case "deep":
                self.answer(200, b"[" * 100_000)
            case _:
                self.answer(200, json.dumps({"name": name}).encode())

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  # the name is the base's


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[tuple[str, str | None]]]]:
    """A server, its port, and what it was asked with which credentials."""
    asked: list[tuple[str, str | None]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Handler,), {"asked": asked}))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_question_is_one_get_with_the_brokers_login() -> None:
    """Names are encoded; the password is in the header only."""
    with serving() as (port, asked):
        api = Api(management_of(f"http://127.0.0.1:{port}/prefix/", BROKER))
        assert api.queue("found") == {"name": "found"}
        assert api.queue("missing") is None
        with pytest.raises(NoAnswer):
            api.exchange("a/b#c")
    paths = [path for path, _ in asked]
    assert paths[0] == "/prefix/api/queues/a%2Fb/found"
    assert paths[-1] == "/prefix/api/exchanges/a%2Fb/a%2Fb%23c"
    assert {login for _, login in asked} == {"Basic bWU6c2VjcmV0"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("moved", "status 302"),
        ("wrong", "not that of a management API"),
        ("broken", "cannot be read"),
        ("deep", "cannot be read"),
    ],
)
def test_an_answer_that_is_none(name: str, why: str) -> None:
    """A redirect would carry the password elsewhere; it is not followed."""
    with serving() as (port, asked):
        with pytest.raises(NoAnswer, match=why):
            Api(management_of(f"http://127.0.0.1:{port}", BROKER)).queue(name)
        assert len(asked) == 1


def test_an_answer_without_end_is_cut_off() -> None:
    with serving() as (port, _), pytest.raises(NoAnswer, match="too long"):
        Api(management_of(f"http://127.0.0.1:{port}", BROKER), largest=5).queue("found")


def test_the_certificate_is_verified(tmp_path: Path) -> None:
    """Z9: by the authority that vouches for the broker, and for the host's name."""
    certs = make_certs(tmp_path)
    trusting = tls_context(Tls(ca=str(certs.ca)))
    for pair, trusted in ((certs.server, True), (certs.wrong_host, False), (certs.only_common_name, False)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        with serving(context) as (port, asked):
            where = management_of(f"https://localhost:{port}", BROKER)
            if trusted:
                assert Api(where, trusting).queue("found") == {"name": "found"}
            else:
                with pytest.raises(NoAnswer, match="not trusted"):
                    Api(where, trusting).queue("found")
            count = len(asked)
            with pytest.raises(NoAnswer, match="not trusted"):
                Api(where, tls_context(Tls())).queue("found")
            assert len(asked) == count


DRIPS = {
    "a status line without end": (b"", b"H"),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
    "a body without end": (b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n", b"["),
    "chunks without end": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n[\r\n"),
}


@contextmanager
def dripping(first: bytes, drop: bytes) -> Iterator[tuple[int, list[bool]]]:
    """A server that answers in time with every byte and never finishes; its port, and the ends it saw."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    ends: list[bool] = []

    def drip() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.recv(65536)
                    client.sendall(first)
                    while not over.wait(0.05):
                        client.sendall(drop)
                ends.append(True)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], ends
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize(("first", "drop"), DRIPS.values(), ids=DRIPS)
def test_an_answer_that_drips_is_cut_off_at_its_time(first: bytes, drop: bytes) -> None:
    """Every byte came within the socket's limit, and the start never ended."""
    with dripping(first, drop) as (port, ends):
        api = Api(management_of(f"http://127.0.0.1:{port}", BROKER), timeout=0.5)
        began = monotonic()
        with pytest.raises(NoAnswer, match="no answer in time"):
            api.queue("found")
        assert monotonic() - began < 5
        wait_for(lambda: bool(ends), 60, "the end of the connection")


def test_all_questions_have_one_deadline() -> None:
    with dripping(b"", b"H") as (port, _):
        api = Api(management_of(f"http://127.0.0.1:{port}", BROKER), deadline=monotonic() + 0.8, timeout=0.5)
        began = monotonic()
        for _ in range(20):
            with pytest.raises(NoAnswer, match="no answer in time"):
                api.queue("found")
        assert monotonic() - began < 5
