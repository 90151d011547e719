"""The TLS context: whose private key is used, and what a certificate must say."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from chronicle.errors import SettingError
from chronicle.transports.seam import Tls
from chronicle.transports.tls import tls_context
from support.certs import Certs, make_certs
from support.files import as_root


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    return make_certs(tmp_path_factory.mktemp("certs"))


def client(certs: Certs) -> Tls:
    return Tls(str(certs.ca), str(certs.client.cert), str(certs.client.key))


def test_Z9_only_alternative_names_count(certs: Certs) -> None:
    """A certificate for another host with ours as its common name would have passed."""
    assert tls_context(Tls(str(certs.ca))).hostname_checks_common_name is False
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certs.only_common_name.cert, certs.only_common_name.key)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = tls_context(Tls(str(certs.ca))).wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        ours.do_handshake()


def test_Z8_a_key_that_others_can_read_is_refused(certs: Certs) -> None:
    assert tls_context(client(certs))
    certs.client.key.chmod(0o644)
    try:
        with pytest.raises(SettingError, match="others can read --tls-key: the key in") as caught:
            tls_context(client(certs))
    finally:
        certs.client.key.chmod(0o600)
    assert caught.value.remedy == f"chmod 600 {certs.client.key}"


@as_root
def test_Z8_a_key_of_somebody_else_is_refused(certs: Certs, tmp_path: Path) -> None:
    stolen = tmp_path / "key.pem"
    stolen.touch(0o600)
    stolen.write_bytes(certs.client.key.read_bytes())
    os.chown(stolen, 12345, -1)
    with pytest.raises(SettingError, match="belongs to another user"):
        tls_context(Tls(str(certs.ca), str(certs.client.cert), str(stolen)))


def test_Z8_a_key_in_the_certificates_file_is_checked_there(certs: Certs, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.touch(0o600)
    both.write_bytes(certs.client.cert.read_bytes() + certs.client.key.read_bytes())
    assert tls_context(Tls(str(certs.ca), str(both)))
    both.chmod(0o644)
    with pytest.raises(SettingError, match="others can read --tls-cert: the key in"):
        tls_context(Tls(str(certs.ca), str(both)))


def test_a_mounted_key_may_be_a_link(certs: Certs, tmp_path: Path) -> None:
    """Kubernetes mounts every secret as one."""
    (tmp_path / "link").symlink_to(certs.client.key)
    assert tls_context(Tls(str(certs.ca), str(certs.client.cert), str(tmp_path / "link")))


def test_what_is_no_key_is_one_clear_error(certs: Certs, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, said in (("missing", "cannot be read"), ("pipe", "is not a file"), ("a\0b", "cannot be read")):
        with pytest.raises(SettingError, match=said):
            tls_context(Tls(str(certs.ca), str(certs.client.cert), str(tmp_path / name)))
