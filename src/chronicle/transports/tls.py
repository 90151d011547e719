"""TLS to any broker: verifying connections, and OpenSSL's errors in plain words.

Rule 1: certificates are always verified; there is no way to ask for less (Z9). The host's name must be among
        the certificate's alternative names: its common name is free text that many authorities do not check.
Rule 2: a client's private key must be the operator's own file, or a secret that the platform mounted.
"""

from __future__ import annotations

import os
import re
import ssl
from typing import Final

from chronicle.errors import BrokerRefused, SettingError
from chronicle.files import open_own
from chronicle.transports.seam import Tls

# OpenSSL's names, in an error of its own or in the text pika makes of one.
TLS_REASON: Final = re.compile(
    r"WRONG_VERSION_NUMBER|HTTP_REQUEST|HANDSHAKE_FAILURE"
    r"|\w*ALERT_(?:BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_\w+|UNKNOWN_CA|ACCESS_DENIED|PROTOCOL_VERSION)"
)
# OpenSSL's codes for what only a strict check minds; Python checks strictly from 3.13 on.
STRICT: Final = range(80, 94)
MALFORMED: Final = (
    "Python 3.13 and newer demand what RFC 5280 does: issue the certificate of the authority, or of the "
    "broker, again with the extension it names (an authority: critical basicConstraints and keyUsage)"
)
UNTRUSTED: Final = "name the authority with --tls-ca FILE, and write the host as it is in the certificate"


def tls_context(tls: Tls) -> ssl.SSLContext:
    """A verifying context; SettingError names the file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError):
        raise SettingError(
            f"--tls-ca: no certificate can be read from {tls.ca!r}", "it must be a readable PEM file"
        ) from None
    context.hostname_checks_common_name = False
    if tls.cert:
        _load_client(context, tls.cert, tls.key)
    return context


def _load_client(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    option = "--tls-key" if key else "--tls-cert"
    try:
        descriptor = open_own(key or cert, os.O_RDONLY, kind=f"{option}: the key in", mounted=True)
        try:
            # By its descriptor: what was checked is what is read.
            context.load_cert_chain(cert, f"/dev/fd/{descriptor}", password=_no_password)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise SettingError(
            f"--tls-cert, --tls-key: {cert!r} and its key cannot be read or do not belong together",
            "both must be readable PEM files; without --tls-key the key is in the certificate's file",
        ) from None


def _no_password() -> str:
    # Without this, OpenSSL asks on the terminal, and a container waits forever.
    raise SettingError(
        "--tls-key: the key is encrypted", "use a key without a passphrase, in a file with mode 600"
    )


def certificate_refused(error: ssl.SSLCertVerificationError, where: str) -> BrokerRefused:
    """The broker's certificate cannot be trusted."""
    return BrokerRefused(
        f"{where}: the broker's certificate is not trusted: {error.verify_message}",
        MALFORMED if error.verify_code in STRICT else UNTRUSTED,
    )


def tls_refused(text: str, where: str, usual_port: str) -> BrokerRefused | None:
    """What OpenSSL's name for the error means, if the text has one."""
    found = TLS_REASON.search(text)
    why = found[0] if found else ""
    if "WRONG_VERSION_NUMBER" in why or "HTTP_REQUEST" in why:
        return BrokerRefused(f"{where}: there is no TLS on that port", f"check the port; {usual_port}")
    if "CERTIFICATE_REQUIRED" in why or "HANDSHAKE_FAILURE" in why:
        return BrokerRefused(
            f"{where}: the broker wants a client certificate", "give it with --tls-cert and --tls-key"
        )
    if "ALERT" in why:
        # Only OpenSSL's own word is shown, not the rest of the text.
        return BrokerRefused(
            f"{where}: the broker refused the TLS connection: {why.lower().replace('_', ' ')}",
            "check --tls-cert and --tls-key against the authority the broker trusts",
        )
    return None


def in_words(error: OSError) -> str:
    """What the system calls an error, or OpenSSL, whose own text is code; empty if it has no name."""
    name: str | None = getattr(error, "reason", None) if isinstance(error, ssl.SSLError) else None
    if name:  # an error that was not made by OpenSSL has none
        return f"TLS failed: {name.replace('_', ' ').lower()}"
    return (error.strerror or "").lower()
