"""The settings of librdkafka that `--set` does not take, and why. Pure.

Rule 1: what would break a promise is refused: committing what is not settled, losing what was confirmed,
        trusting any certificate, making topics by a slip, loading code.
Rule 2: what chronicle has an option for is said by that option, once.
Rule 3 (Z3): no secret is taken, because every user of the machine can read a command line.
"""

from __future__ import annotations

import re
from typing import Final

from chronicle.errors import SettingError

_OFFSETS: Final = (
    "chronicle commits what is settled, and nothing else",
    "leave it out",
)
_FILES: Final = ("TLS has options of its own", "use --tls-ca, --tls-cert and --tls-key, with PEM files")
_VERIFY: Final = (
    "certificates and host names are always verified",
    "name the authority with --tls-ca FILE, and write the hosts as they are in their certificates",
)
_WHERE: Final = ("the URL names the brokers", "write them in it: kafka://h1:9092,h2:9092")
_LOGIN: Final = (
    "the login is in the URL",
    "write the user there, and the password in CHRONICLE_PASSWORD or a file that "
    "CHRONICLE_PASSWORD_FILE names",
)
_TOPICS: Final = ("a slip in a name would make a topic", "create topics with chronicle declare")
_SECRET: Final = (
    "every user of the machine can read a command line",
    "use a setting that names a file, or a login by user and password",
)
_CODE: Final = ("it runs code of its own", "leave it out")
_CALLBACKS: Final = ("it takes code and not text", "leave it out")
_STRENGTH: Final = (
    "what is published or dead-lettered must be confirmed by all replicas in sync, and once",
    "leave it out",
)
_LOG: Final = ("the client's lines go through chronicle's own log", "use --log-level")

REFUSED: Final = {
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "auto.offset.reset": ("where a new group begins is an option", "use --from start, end or a time"),
    "group.id": ("the group is an option", "use --group NAME"),
    "enable.partition.eof": ("chronicle needs to see where a partition ends", "leave it out"),
    "bootstrap.servers": _WHERE,
    "metadata.broker.list": _WHERE,
    "allow.auto.create.topics": _TOPICS,
    "security.protocol": ("the URL's scheme says whether TLS is used", "write kafka:// or kafka+ssl://"),
    "sasl.username": _LOGIN,
    "sasl.password": _LOGIN,
    "enable.sasl.oauthbearer.unsecure.jwt": ("it is a login that anybody can forge", "leave it out"),
    "enable.ssl.certificate.verification": _VERIFY,
    "ssl.endpoint.identification.algorithm": _VERIFY,
    "ssl.ca.location": _FILES,
    "ssl.certificate.location": _FILES,
    "ssl.key.location": _FILES,
    "ssl.keystore.location": _FILES,
    "ssl.engine.id": _CODE,
    "ssl.engine.location": _CODE,
    "ssl.providers": _CODE,
    "plugin.library.paths": _CODE,
    "sasl.kerberos.kinit.cmd": _CODE,
    "transactional.id": ("chronicle uses no transactions", "leave it out"),
    "delivery.report.only.error": ("every message is confirmed", "leave it out"),
    "enable.gapless.guarantee": ("one failure would end the client", "leave it out"),
    "statistics.interval.ms": ("nobody reads the client's statistics", "leave it out"),
    "log_level": _LOG,
    "log.queue": _LOG,
    "debug": _LOG,
    "logger": _CALLBACKS,
    "enabled_events": _CALLBACKS,
    "interceptors": _CALLBACKS,
    "msg_order_cmp": _CALLBACKS,
    "opaque": _CALLBACKS,
    "share.acknowledgement.mode": ("chronicle uses no share groups", "leave it out"),
}
_PATTERNS: Final = (
    (re.compile(r"password|secret|passphrase|\.pem\b|_certificate|_key\b|_ca\b"), _SECRET),
    (re.compile(r"_cb\Z|\Aon_|callback|\Adefault[._]topic"), _CALLBACKS),
    (re.compile(r"\Atest\."), ("it is for librdkafka's own tests", "leave it out")),
)
# Settings that may be said, but not made weaker: what they must be.
STRONG: Final = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "enable.idempotence": ("true", "1", "t"),
}


def refuse(name: str, value: str) -> None:
    """SettingError for a setting that is not taken; what librdkafka does not know is up to librdkafka."""
    plain = name.strip().lower()
    found = REFUSED.get(plain)
    if found is None:
        found = next((why for pattern, why in _PATTERNS if pattern.search(plain)), None)
    if found is None and plain in STRONG and value.strip().lower() not in STRONG[plain]:
        found = _STRENGTH
    if found is None:
        return
    why, remedy = found
    # The name is one that we know, or ends in a known way: what else it contains is not repeated.
    shown = plain if plain in REFUSED or plain in STRONG else "one of its settings"
    raise SettingError(f"--set: {shown} is not taken: {why}", remedy)
