"""Certificates for one test run: an authority, a client, a server, and servers under wrong names."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SIGNS: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certs:
    """What a TLS test needs: all of it signed by `ca`, except `stranger`, which signed itself."""

    ca: Path
    server: Pair
    wrong_host: Pair
    only_common_name: Pair
    client: Pair
    stranger: Pair


@dataclass(frozen=True, slots=True)
class _Authority:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey


def make_certs(folder: Path, *, key_usage: bool = True) -> Certs:
    """Write a fresh set into `folder`; valid from yesterday for a week.

    Without `key_usage` the authority does not say what its key is for, which Python refuses from 3.13 on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = _Authority(_name("chronicle test authority"), ec.generate_private_key(ec.SECP256R1()))
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    elsewhere = [x509.DNSName("elsewhere.invalid")]
    root = _sign(authority.name, authority.key, authority, is_ca=True, key_usage=key_usage)
    ca = folder / "ca.pem"
    ca.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    return Certs(
        ca=ca,
        server=_pair(folder, "server", authority, here, ExtendedKeyUsageOID.SERVER_AUTH),
        wrong_host=_pair(folder, "wrong-host", authority, elsewhere, ExtendedKeyUsageOID.SERVER_AUTH),
        only_common_name=_pair(
            folder, "localhost", authority, [], ExtendedKeyUsageOID.SERVER_AUTH, "localhost"
        ),
        client=_pair(folder, "client", authority, [], ExtendedKeyUsageOID.CLIENT_AUTH),
        stranger=_pair(folder, "stranger", None, here, ExtendedKeyUsageOID.CLIENT_AUTH),
    )


def _pair(
    folder: Path,
    word: str,
    authority: _Authority | None,
    names: Sequence[x509.GeneralName],
    usage: x509.ObjectIdentifier,
    common: str = "",
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(common or f"chronicle test {word}")
    cert = _sign(subject, key, authority or _Authority(subject, key), names=names, usage=usage)
    pair = Pair(folder / f"{word}.pem", folder / f"{word}.key.pem")
    pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    pair.key.touch(mode=0o600)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pair


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: _Authority,
    *,
    names: Sequence[x509.GeneralName] = (),
    usage: x509.ObjectIdentifier | None = None,
    is_ca: bool = False,
    key_usage: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if key_usage:
        builder = builder.add_extension(SIGNS, critical=True)
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
