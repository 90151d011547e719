"""The proxy spoils a connection in the ways the fault tests rely on (brokers.md, Harness)."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from support.proxy import Mode, Proxy
from support.waiting import wait_for


@pytest.fixture
def echo() -> Iterator[str]:
    """The URL of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(65536):
                client.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/%2F"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo: str) -> Iterator[Proxy]:
    with Proxy(echo, delay=0.05) as proxy:
        yield proxy


def connect(proxy: Proxy, url: str = "amqp://127.0.0.1:1") -> socket.socket:
    port = int(proxy.url_for(url).rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


def silent(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def test_the_url_keeps_everything_but_the_port(proxy: Proxy, echo: str) -> None:
    url = proxy.url_for("amqps://me:secret@localhost:5671/v%2Fhost?heartbeat=5")
    assert url.startswith("amqps://me:secret@localhost:")
    assert url.endswith("/v%2Fhost?heartbeat=5")
    assert url != "amqps://me:secret@localhost:5671/v%2Fhost?heartbeat=5"


@pytest.mark.parametrize("mode", [Mode.PASS, Mode.DELAY, Mode.SLICE])
def test_what_is_only_slowed_arrives_whole(proxy: Proxy, mode: Mode) -> None:
    proxy.set(mode)
    with connect(proxy) as client:
        client.sendall(b"x" * 3000)
        assert read(client, 3000) == b"x" * 3000


def test_cut_resets_and_takes_new_connections(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        client.sendall(b"two")
        assert read(client, 3) == b"two"


def test_cut_resets_a_connection_that_is_stuck_in_a_black_hole(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.set(Mode.BLACK_HOLE)
        client.sendall(b"lost")
        wait_for(lambda: proxy.connections == 1, 60, "the connection")
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_refuse_closes_the_port_and_leaves_open_connections_alone(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        client.sendall(b"two")
        assert read(client, 3) == b"two"
        proxy.accept()
        with connect(proxy) as second:
            second.sendall(b"three")
            assert read(second, 5) == b"three"


def test_a_black_hole_keeps_the_connection_and_delivers_later(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.set(Mode.BLACK_HOLE)
        client.sendall(b"held")
        assert silent(client)
        proxy.set(Mode.PASS)
        assert read(client, 4) == b"held"


def test_dropped_replies_never_arrive(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.set(Mode.DROP_REPLIES)
        client.sendall(b"dropped")
        assert silent(client)
        proxy.set(Mode.PASS)
        client.sendall(b"kept")
        assert read(client, 4) == b"kept"


def test_a_lost_reply_resets_its_connection_only(proxy: Proxy) -> None:
    """S-a: the request arrives, the reply does not, and the next connection is as good as any."""
    with connect(proxy) as other, connect(proxy) as client:
        other.sendall(b"one")
        assert read(other, 3) == b"one"
        proxy.lose_replies(b"READ", times=2)
        client.sendall(b"something else")
        assert read(client, 14) == b"something else"
        for _ in range(2):
            with connect(proxy) as loser:
                loser.sendall(b"*1 READ")
                with pytest.raises(ConnectionResetError):
                    loser.recv(1)
        assert proxy.lost == 2
        for unharmed in (other, client):
            unharmed.sendall(b"READ again")
            assert read(unharmed, 10) == b"READ again"


def test_a_reply_is_lost_after_its_request_has_arrived() -> None:
    """S-a: losing the request would be another fault."""
    arrived: list[bytes] = []

    def serve() -> None:
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):
            while data := client.recv(65536):
                arrived.append(data)
                client.sendall(b"done")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        with Proxy(f"redis://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            proxy.lose_replies(b"WRITE")
            with connect(proxy) as client:
                client.sendall(b"WRITE this")
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
    assert arrived == [b"WRITE this"]


def test_an_end_of_the_server_is_passed_on(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"one")
        assert read(client, 3) == b"one"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    wait_for(lambda: proxy.connections == 0, 60, "the end of the connection")
