"""The webhook syncer against a real server with scripted answers."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import ssl
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chronicle import Retry
from chronicle.errors import SettingError
from chronicle_syncers.webhook import LONGEST_WAIT, Webhook, idempotency_key, parse_url, wait
from support.certs import make_certs
from support.proca_messages import CANARY, action, event

SECRET = "canary-secret"
NOW = 1_800_000_000.0


@dataclass
class Script:
    """What the server answers next, and what it has seen."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    hang_up: int = 0
    hang_up_after: int = 0


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            script.connections.add(self.client_address)
            if script.hang_up:
                script.hang_up -= 1
                self.close_connection = True
                return
            script.seen.append((self.path, dict(self.headers), body))
            status, headers = script.answers.pop(0) if script.answers else (200, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
            if script.hang_up_after:
                script.hang_up_after -= 1
                self.close_connection = True  # without saying so: the client believes it is kept

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def environ(server: ThreadingHTTPServer) -> dict[str, str]:
    return {
        "CHRONICLE_WEBHOOK_URL": f"http://127.0.0.1:{server.server_port}/hook?key={SECRET}",
        "CHRONICLE_WEBHOOK_TOKEN": SECRET,
        "CHRONICLE_WEBHOOK_TIMEOUT": "20",
    }


def said(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_message_is_posted(environ: dict[str, str], script: Script) -> None:
    with Webhook(environ) as sync:
        assert sync(action()) is True
    [(path, headers, body)] = script.seen
    assert path == f"/hook?key={SECRET}"
    assert json.loads(body) == action()
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["Idempotency-Key"] == "1001"


def test_connections_are_kept(environ: dict[str, str], script: Script) -> None:
    with Webhook(environ) as sync:
        assert all(sync(action(n)) for n in range(5))
        assert len(script.connections) == 1
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(sync, (action(n) for n in range(40))))
    assert len(script.connections) <= 5
    assert len(script.seen) == 45


@pytest.mark.parametrize("status", [201, 204, 299])
def test_2xx_is_true(environ: dict[str, str], script: Script, status: int) -> None:
    script.answers = [(status, {})]
    with Webhook(environ) as sync:
        assert sync(action()) is True


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 422])
def test_other_answers_are_false_and_redirects_not_followed(
    environ: dict[str, str], script: Script, status: int
) -> None:
    script.answers = [(status, {"Location": "/elsewhere"})]
    with Webhook(environ) as sync:
        assert sync(action()) is False
    assert len(script.seen) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_in_trouble_means_another_try(environ: dict[str, str], script: Script, status: int) -> None:
    script.answers = [(status, {"Retry-After": "7"}), (status, {})]
    with Webhook(environ) as sync:
        with pytest.raises(Retry, match=str(status)) as caught:
            sync(action())
        assert caught.value.after == 7
        with pytest.raises(Retry) as caught:
            sync(action())
        assert caught.value.after is None
        assert sync(action()) is True


def test_how_long_the_server_wants_us_to_wait() -> None:
    assert wait("30", NOW) == 30
    assert wait(formatdate(NOW + 90, usegmt=True), NOW) == 90
    assert (
        wait("86400", NOW)
        == wait("9" * 5000, NOW)
        == wait("Fri, 31 Dec 9999 23:59:59 GMT", NOW)
        == LONGEST_WAIT
    )
    for nothing in (None, "", "0", "-5", "soon", "²", formatdate(NOW - 5), "Fri, 99 Dec 99999 99:99:99 GMT"):
        assert wait(nothing, NOW) is None


def test_a_kept_connection_that_ended_is_replaced(environ: dict[str, str], script: Script) -> None:
    script.hang_up_after = 1
    with Webhook(environ) as sync:
        assert sync(action(1)) is True
        assert sync(action(2)) is True
    assert [headers["Idempotency-Key"] for _, headers, _ in script.seen] == ["1", "2"]
    assert len(script.connections) == 2


def test_a_fresh_connection_that_ends_is_tried_no_further(environ: dict[str, str], script: Script) -> None:
    script.hang_up = 1
    with Webhook(environ) as sync:
        with pytest.raises(Retry, match="without an answer"):
            sync(action())
        assert sync(action()) is True
    assert len(script.connections) == 2


def test_nobody_listens(environ: dict[str, str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        environ["CHRONICLE_WEBHOOK_URL"] = f"http://127.0.0.1:{unused.getsockname()[1]}/{SECRET}"
        with Webhook(environ) as sync, pytest.raises(Retry, match="ConnectionRefusedError") as caught:
            sync(action())
    assert SECRET not in said(caught.value)


def test_a_server_that_drips_is_left(environ: dict[str, str]) -> None:
    """Every byte comes within the time-out, the answer never: a worker must not hang on it."""
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not stop.wait(0.05):
                try:
                    peer.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        environ["CHRONICLE_WEBHOOK_URL"] = f"http://127.0.0.1:{listener.getsockname()[1]}/{SECRET}"
        environ["CHRONICLE_WEBHOOK_TIMEOUT"] = "0.5"
        try:
            with Webhook(environ) as sync, pytest.raises(Retry, match="in time") as caught:
                sync(action())
        finally:
            stop.set()
            thread.join(30)
    assert SECRET not in said(caught.value)


def test_nonsense_is_another_try(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(f"{CANARY} is not HTTP\r\n\r\n".encode())

        thread = threading.Thread(target=babble)
        thread.start()
        environ["CHRONICLE_WEBHOOK_URL"] = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with Webhook(environ) as sync, pytest.raises(Retry) as caught:
            sync({})
        thread.join(30)
    assert CANARY not in said(caught.value)


def test_no_secret_and_no_person_in_a_text(environ: dict[str, str], script: Script) -> None:
    """D-21, Z4, Z5: the answer may quote the message, the URL may be a secret."""
    script.answers = [(500, {"Retry-After": CANARY})]
    with Webhook(environ) as sync:
        with pytest.raises(Retry) as caught:
            sync(action())
        shown = said(caught.value) + repr(sync.__dict__["_endpoint"])
    assert CANARY not in shown
    assert SECRET not in shown


def test_the_key_differs_for_what_shares_an_id() -> None:
    """An event or a confirmation with the id of its action must not pass for that action."""
    confirmation = action() | {"stage": "supporter_confirm"}
    keys = {idempotency_key(m, json.dumps(m).encode()) for m in (action(), event(), confirmation)}
    assert len(keys) == 3
    assert idempotency_key(event(), b"body") == hashlib.sha256(b"body").hexdigest()


def test_the_token_may_come_from_a_file(environ: dict[str, str], script: Script, tmp_path: Path) -> None:
    """Z3."""
    del environ["CHRONICLE_WEBHOOK_TOKEN"]
    environ["CHRONICLE_WEBHOOK_TOKEN_FILE"] = str(tmp_path / "token")
    with pytest.raises(SettingError, match="TOKEN_FILE"):
        Webhook(environ)
    (tmp_path / "token").write_text("from-file\n")
    with Webhook(environ) as sync:
        assert sync(action()) is True
    assert script.seen[0][1]["Authorization"] == "Bearer from-file"


@pytest.mark.parametrize(
    "wrong",
    [
        {"CHRONICLE_WEBHOOK_URL": ""},
        {"CHRONICLE_WEBHOOK_URL": f"ftp://example.org/{SECRET}"},
        {"CHRONICLE_WEBHOOK_URL": f"https:///{SECRET}"},
        {"CHRONICLE_WEBHOOK_URL": f"https://user:{SECRET}@example.org/"},
        {"CHRONICLE_WEBHOOK_URL": f"https://example.org/{SECRET}\n\x00x"},
        {"CHRONICLE_WEBHOOK_URL": f"https://example.org:99999/{SECRET}"},
        {"CHRONICLE_WEBHOOK_URL": f"https://{'a' * 64}.org/{SECRET}"},
        {"CHRONICLE_WEBHOOK_TOKEN": f"{SECRET}\r\nX: y"},
        {"CHRONICLE_WEBHOOK_TOKEN": SECRET, "CHRONICLE_WEBHOOK_TOKEN_FILE": "token"},
        {"CHRONICLE_WEBHOOK_TIMEOUT": "soon"},
    ],
)
def test_wrong_settings_are_named_and_never_shown(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingError) as caught:
        Webhook({"CHRONICLE_WEBHOOK_URL": "https://example.org/", **wrong})
    assert next(iter(wrong)) in str(caught.value)
    assert SECRET not in said(caught.value) + caught.value.remedy


def test_plain_http_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Z9."""
    with caplog.at_level(logging.WARNING), Webhook({"CHRONICLE_WEBHOOK_URL": f"http://crm.test/{SECRET}"}):
        pass
    assert "unencrypted" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(("pair", "trusted"), [("server", True), ("wrong_host", False), ("stranger", False)])
def test_certificates_are_checked(
    environ: dict[str, str],
    server: ThreadingHTTPServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pair: str,
    trusted: bool,
) -> None:
    """Z9: a wrong certificate never gets a message, and the message is not lost."""
    certs = make_certs(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(getattr(certs, pair).cert, getattr(certs, pair).key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setattr(server, "handle_error", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(certs.ca))
    environ["CHRONICLE_WEBHOOK_URL"] = f"https://127.0.0.1:{server.server_port}/"
    with Webhook(environ) as sync:
        if trusted:
            assert sync(action(1)) is True
            assert sync(action(2)) is True
        else:
            with pytest.raises(Retry, match="not trusted"):
                sync(action())


def test_Z9_a_common_name_is_no_host_name() -> None:
    """As for the broker: many authorities do not check what it says."""
    endpoint = parse_url("https://crm.example/contacts", 1.0)
    assert endpoint.tls is not None
    assert endpoint.tls.hostname_checks_common_name is False
