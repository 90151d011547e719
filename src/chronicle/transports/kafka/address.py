"""Where a Kafka cluster is, read from a URL. Pure; the client is not needed to find a URL wrong.

    kafka://h1:9092,h2              brokers to begin with: they name the others
    kafka+ssl://user@h1:9093,h2     with TLS, and a login (SASL)

Rule 1: an error never repeats parts of the URL: a password with an unescaped `#` or `@` can be anywhere.
Rule 2: `--set` takes every setting of librdkafka, but for those that would break a promise, or are said
        elsewhere (refused.py). Whether a value makes sense, librdkafka says when a client is made
        (problems.py).
Rule 3 (Z9): certificates and host names are always verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final
from urllib.parse import unquote

from chronicle.core.frozen import frozen
from chronicle.errors import SettingError
from chronicle.transports.hosts import Host, host_of, is_loopback, parts_of
from chronicle.transports.kafka.options import SECURE
from chronicle.transports.kafka.refused import refuse
from chronicle.transports.seam import Tls

PORT: Final = 9092
MECHANISM: Final = "sasl.mechanism"
BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MAX_PREFETCH: Final = 65535
SILENCE: Final = 10_000  # milliseconds without an answer after which a broker counts as away
SESSION: Final = "session.timeout.ms"
HEARTBEAT: Final = "heartbeat.interval.ms"
USUAL_HEARTBEAT: Final = 3_000  # milliseconds
# How much a client fetches ahead of its consumer, and for how long fetching rests when that is there. In the
# usual second, a fast consumer has long emptied it, and stands still.
FETCHED_AHEAD: Final = {"queued.max.messages.kbytes": 16 * 1024, "fetch.queue.backoff.ms": 10}
FORMS: Final = "kafka://user@h1:9092,h2:9092, or kafka+ssl:// with TLS"


@frozen
class Address:
    """One cluster, and how to log in. The password never shows."""

    hosts: tuple[Host, ...]
    user: str
    password: str = field(repr=False)
    tls: bool
    settings: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)  # for librdkafka
    prefetch: int | None = None  # used unless the operator gives --prefetch

    @property
    def place(self) -> str:
        """The brokers of the URL, safe to print."""
        return ",".join(map(str, self.hosts))

    @property
    def loopback(self) -> bool:
        """Whether traffic to these hosts stays on this machine."""
        return all(is_loopback(host.name) for host in self.hosts)

    @property
    def mechanism(self) -> str:
        """How to log in; empty: not at all."""
        return self.settings.get(MECHANISM, "PLAIN" if self.user else "")

    def masked(self, text: str) -> str:
        """A text of the client, without the password; telemetry masks everything else."""
        return text.replace(self.password, "***") if self.password else text


def address_of(url: str, extras: Mapping[str, str] | None = None) -> Address:
    """Read a Kafka URL and the `--set` pairs that belong to it; SettingError if it is wrong."""
    parts = parts_of(url)
    if parts.query or "?" in url:
        raise SettingError(
            "a Kafka URL takes no arguments", "use --set, and --tls-ca, --tls-cert and --tls-key"
        )
    if parts.path.strip("/"):
        raise SettingError("a Kafka URL ends with its hosts", f"write {FORMS}; --queue names the topic")
    user, _, password = parts.login.partition(":")
    settings = dict(extras or {})
    prefetch = _prefetch(settings.pop("prefetch", None))
    for name, value in settings.items():
        refuse(name, value)
    if "sasl.mechanisms" in settings:  # librdkafka's older name for the same
        settings.setdefault(MECHANISM, settings.pop("sasl.mechanisms"))
    address = Address(
        hosts=tuple(host_of(text, PORT, FORMS) for text in parts.hosts.split(",")),
        user=unquote(user),
        password=unquote(password),
        tls=parts.scheme in SECURE,
        settings=settings,
        prefetch=prefetch,
    )
    _check_login(address)
    _check_heartbeat(settings)
    return address


def client_config(address: Address, tls: Tls, tag: str) -> dict[str, Any]:
    """What every client of this cluster is made with; SettingError names a file that cannot be used."""
    config: dict[str, Any] = {
        "client.id": "".join(sign if "!" <= sign <= "~" else "-" for sign in tag),
        "log.connection.close": False,  # brokers close what is idle for ten minutes: no news
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,  # R-002-22
        "reconnect.backoff.max.ms": 1000,
        "enable.metrics.push": False,  # what a client does here is nobody else's business, unless asked for
        **address.settings,
        "bootstrap.servers": address.place,
        # A slip in a name must not make a topic; librdkafka heeds this for producers, too.
        "allow.auto.create.topics": False,
    }
    login = address.mechanism
    wire = "SSL" if address.tls else "PLAINTEXT"
    config["security.protocol"] = f"SASL_{wire}" if login else wire
    if login:
        config[MECHANISM] = login
    if login in BY_PASSWORD:
        if not address.password:
            raise SettingError(
                "the URL has a user and there is no password",
                "put it in CHRONICLE_PASSWORD, or in the file that CHRONICLE_PASSWORD_FILE names",
            )
        config |= {"sasl.username": address.user, "sasl.password": address.password}
    if address.tls:
        config |= _files(tls)
    return config


def consumer_config(address: Address, tls: Tls, tag: str, group: str) -> dict[str, Any]:
    """What a consumer is made with (K1): it commits nothing by itself, and begins where it is told."""
    usual: dict[str, Any] = {
        "check.crcs": True,  # what was damaged on a disk is not handled
        "socket.timeout.ms": SILENCE,
        **FETCHED_AHEAD,
    }
    if address.settings.get("group.protocol", "classic").lower() != "consumer":
        usual["partition.assignment.strategy"] = "cooperative-sticky"
        usual["heartbeat.interval.ms"] = _heartbeat(address.settings)
    return {
        **usual,
        **client_config(address, tls, tag),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }


def _heartbeat(settings: Mapping[str, str]) -> int:
    """Three in a session, as is usual; a member that sends fewer is taken for dead."""
    session = settings.get(SESSION, "")
    return max(1, min(USUAL_HEARTBEAT, int(session) // 3)) if session.isdecimal() else USUAL_HEARTBEAT


def producer_config(address: Address, tls: Tls, tag: str) -> dict[str, Any]:
    """What a producer is made with (K5): confirmed by all replicas in sync, in order, none twice."""
    return {
        "linger.ms": 5,
        "partitioner": "murmur2_random",  # Java's: a key is in the partition where other producers put it
        **client_config(address, tls, tag),
        "acks": "all",
        "enable.idempotence": True,
    }


def _files(tls: Tls) -> dict[str, str]:
    from chronicle.transports.tls import tls_context  # no URL is checked with it

    tls_context(tls)  # for its complaints: librdkafka reads the same files and says less
    files = {"ssl.endpoint.identification.algorithm": "https"}
    if tls.ca:
        files["ssl.ca.location"] = tls.ca
    if tls.cert:
        files |= {"ssl.certificate.location": tls.cert, "ssl.key.location": tls.key or tls.cert}
    return files


def _check_login(address: Address) -> None:
    mechanism = address.mechanism
    if address.user and mechanism not in BY_PASSWORD:
        raise SettingError(
            f"{MECHANISM} does not go with a user in the URL", f"it takes {', '.join(BY_PASSWORD)}"
        )
    if mechanism in BY_PASSWORD and not address.user:
        raise SettingError(
            f"{MECHANISM} needs a user",
            "write the user in the URL, kafka://user@host:9092, and the password in CHRONICLE_PASSWORD",
        )


def _check_heartbeat(settings: Mapping[str, str]) -> None:
    session, heartbeat = settings.get(SESSION, ""), settings.get(HEARTBEAT, "")
    if session.isdecimal() and heartbeat.isdecimal() and int(heartbeat) >= int(session):
        raise SettingError(
            f"{HEARTBEAT} is not shorter than {SESSION}: no member would stay in its group",
            f"leave {HEARTBEAT} out, or choose a third of {SESSION}",
        )


def _prefetch(value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= MAX_PREFETCH:
        return int(value)
    raise SettingError(
        f"prefetch takes a whole number of messages from 1 to {MAX_PREFETCH}", "for example prefetch=100"
    )
