"""What a connection says about certificates that only a strict check refuses (Z9).

Python checks strictly from 3.13 on; on an older one the test asks for the same.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronicle.errors import BrokerRefused, BrokerUnreachable
from chronicle.transports.rabbitmq import parameters
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.seam import Closing, Connector, Tls, never
from chronicle.transports.tls import tls_context
from support.certs import Certs, make_certs

PATIENCE = 10.0


@contextlib.contextmanager
def tls_listener(certs: Certs) -> Iterator[int]:
    """The port of a server that greets one client by TLS and hangs up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server.cert, certs.server.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)

        def serve() -> None:
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                client.settimeout(PATIENCE)
                context.wrap_socket(client, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tls_context

    def strict(tls: Tls) -> ssl.SSLContext:
        context = usual(tls)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(parameters, "tls_context", strict)


def connect(certs: Certs) -> None:
    """Try it once; how far it comes shows what is thought of the certificate."""
    with tls_listener(certs) as port:
        url = f"amqps://guest:guest@localhost:{port}/"
        transport = RabbitTransport(Connector(url, "orders", tls=Tls(ca=str(certs.ca))))
        try:
            transport.open(never)
        finally:
            transport.close(Closing.LOST)


def test_an_authority_without_key_usage_is_named_with_a_remedy(tmp_path: Path) -> None:
    """Z9, D-9: naming the authority again would not help; a better certificate does."""
    with pytest.raises(BrokerRefused, match=r"not trusted.*key usage") as refused:
        connect(make_certs(tmp_path, key_usage=False))
    assert "keyUsage" in refused.value.remedy
    assert "3.13" in refused.value.remedy
    assert "--tls-ca" not in refused.value.remedy


def test_an_authority_with_key_usage_passes_the_strict_check(tmp_path: Path) -> None:
    """Z9: what ends this one is not the certificate, but a server that hangs up."""
    with pytest.raises(BrokerUnreachable):
        connect(make_certs(tmp_path))
