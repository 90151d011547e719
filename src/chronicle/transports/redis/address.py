"""Where a Redis server is, read from a URL. Pure; the client is not needed to find a URL wrong.

    redis://user@host:6379/0                 one server
    redis+sentinel://h1,h2:26379/SERVICE/0   the master that these sentinels name
    redis+cluster://h1,h2                    the node of a cluster that has the stream

With `rediss` for `redis`, the connections use TLS.

Rule: an error never repeats parts of the URL: a password with an unescaped `#` or `@` can be anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from chronicle.core.frozen import frozen
from chronicle.core.urls import Url
from chronicle.errors import SettingError
from chronicle.transports.hosts import Host, host_of, is_loopback, parts_of
from chronicle.transports.redis.options import SETTINGS

CONNECT_TIMEOUT: Final = 5.0  # seconds; a stop waits for a connect, so it is short
MAX_PREFETCH: Final = 65535
FORMS: Final = "redis://user@host:6379/0, redis+sentinel://h1,h2/SERVICE/0 or redis+cluster://h1,h2"


class Kind(StrEnum):
    """How the server is found."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


PORTS: Final = {Kind.SINGLE: 6379, Kind.SENTINEL: 26379, Kind.CLUSTER: 6379}


@frozen
class Address:
    """One Redis, and how to log in. The password never shows."""

    kind: Kind
    hosts: tuple[Host, ...]
    service: str  # the name the sentinels know the master by
    db: int
    user: str
    password: str = field(repr=False)
    tls: bool
    timeout: float  # to connect, seconds
    prefetch: int | None = None  # used unless the operator gives --prefetch

    @property
    def place(self) -> str:
        """Hosts, service and database, safe to print."""
        hosts = ",".join(map(str, self.hosts))
        return f"{hosts}/{self.service + '/' if self.service else ''}{self.db}"

    @property
    def loopback(self) -> bool:
        """Whether traffic to these hosts stays on this machine."""
        return all(is_loopback(host.name) for host in self.hosts)


def address_of(url: str, extras: Mapping[str, str] | None = None) -> Address:
    """Read a Redis URL and the `--set` pairs that belong to it; SettingError if it is wrong."""
    parts = parts_of(url)
    if parts.query:
        raise SettingError(
            "a Redis URL takes no arguments", "use --set, and --tls-ca, --tls-cert and --tls-key"
        )
    scheme, _, how = parts.scheme.partition("+")
    kind = Kind(how) if how else Kind.SINGLE
    user, _, password = parts.login.partition(":")
    hosts = tuple(host_of(text, PORTS[kind], FORMS) for text in parts.hosts.split(","))
    if kind is Kind.SINGLE and len(hosts) > 1:
        raise SettingError("the URL names several hosts", f"say what they are: {FORMS}")
    service, db = _path(parts, kind)
    options = {name: _option(name, value) for name, value in (extras or {}).items()}
    return Address(
        kind=kind,
        hosts=hosts,
        service=service,
        db=db,
        user=unquote(user),
        password=unquote(password),
        tls=scheme == "rediss",
        timeout=options.get("connection_timeout", CONNECT_TIMEOUT * 1000) / 1000,
        prefetch=options.get("prefetch"),
    )


def _path(parts: Url, kind: Kind) -> tuple[str, int]:
    """The sentinels' service and the number of the database."""
    pieces = [unquote(piece) for piece in parts.path.strip("/").split("/") if piece]
    service = ""
    if kind is Kind.SENTINEL:
        if not pieces:
            raise SettingError(
                "the URL does not name the service",
                "write redis+sentinel://h1,h2/SERVICE/0, with the name the sentinels know the master by",
            )
        service = pieces.pop(0)
        if not service.isprintable():
            raise SettingError("the service in the URL contains control characters", "give its plain name")
    number = pieces.pop(0) if pieces else "0"
    if pieces or not (number.isascii() and number.isdigit() and len(number) < 5):
        raise SettingError("the URL's database is not a number", f"write {FORMS}")
    if kind is Kind.CLUSTER and int(number):
        raise SettingError("a Redis cluster has only database 0", "leave the number out")
    return service, int(number)


def _option(name: str, value: str) -> int:
    bounds = {"connection_timeout": (100, 30_000), "prefetch": (1, MAX_PREFETCH)}
    if name not in bounds:
        raise SettingError(
            "an argument of --set is not known to the Redis transport",
            "it accepts " + ", ".join(f"{known} ({unit})" for known, unit in SETTINGS.items()),
        )
    least, most = bounds[name]
    if value.isascii() and value.isdigit() and len(value) < 9 and least <= int(value) <= most:
        return int(value)
    raise SettingError(
        f"{name} takes a whole number of {SETTINGS[name]} from {least} to {most}", f"for example {name}=1000"
    )
