"""Where a RabbitMQ broker is, read from an amqp URL. Pure; pika is not needed to find a URL wrong.

Rule 1: an error never repeats parts of the URL: a password with an unescaped `#` or `@` can be anywhere.
Rule 2: only a short list of URL arguments is accepted; the rest is refused. pika's `ssl_options` would be
        evaluated and could switch verification off (Z9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from chronicle.core.frozen import frozen
from chronicle.errors import SettingError
from chronicle.transports.hosts import ENCODE, UNREADABLE, is_loopback, parts_of
from chronicle.transports.rabbitmq.options import SETTINGS

PORTS: Final = {"amqp": 5672, "amqps": 5671}
CONNECT_TIMEOUT: Final = 10.0
MAX_PREFETCH: Final = 65535  # AMQP's maximum; zero would mean no limit


@frozen
class Address:
    """One broker and virtual host, and how to log in. The password never shows."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: bool
    given_password: bool  # the URL has one, as opposed to RabbitMQ's guest
    heartbeat: int | None  # seconds; None: the caller decides
    timeout: float  # to connect, seconds
    prefetch: int | None = None  # used unless the operator gives --prefetch

    @property
    def place(self) -> str:
        """host:port/vhost, safe to print."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        vhost = "" if self.vhost == "/" else quote(self.vhost, safe="")
        return f"{quote(host, safe='[]:.')}:{self.port}/{vhost}"

    @property
    def loopback(self) -> bool:
        """Whether traffic to this host stays on this machine."""
        return is_loopback(self.host)


def address_of(url: str, extras: Mapping[str, str] | None = None) -> Address:
    """Read an amqp or amqps URL and the `--set` pairs that belong to it; SettingError if it is wrong."""
    parts_of(url)  # for what it refuses; urllib reads the host and the port
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
    except ValueError:
        # The exception quotes what it could not read, which may be half a password.
        raise SettingError(UNREADABLE, ENCODE) from None
    scheme = parts.scheme.lower()
    if not host:
        raise SettingError(
            "the URL names no host",
            f"write {scheme}://user@host/vhost; the password goes in CHRONICLE_PASSWORD",
        )
    if "/" in parts.path[1:]:
        raise SettingError("the URL's virtual host has a / in it", "write / in a virtual host as %2F")
    options = _options({**_query(parts.query), **(extras or {})})
    return Address(
        host=host,
        port=port or PORTS[scheme],
        vhost=unquote(parts.path[1:]) or "/",
        user=unquote(parts.username or "") or "guest",
        password=unquote(parts.password or "") if parts.username else "guest",
        tls=scheme == "amqps",
        given_password=bool(parts.password),
        heartbeat=options.get("heartbeat"),
        timeout=options.get("connection_timeout", CONNECT_TIMEOUT * 1000) / 1000,
        prefetch=options.get("prefetch"),
    )


def _query(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError:
        raise SettingError("the URL's arguments cannot be read", "write them as ?heartbeat=20") from None


def _options(options: Mapping[str, str]) -> dict[str, int]:
    """The settings that are given, each within its bounds."""
    found: dict[str, int] = {}
    for name, value in options.items():
        match name:
            case "heartbeat":
                # Zero would switch heartbeats off: a dead broker would then never be noticed (RB5).
                found[name] = _whole(name, value, 1, 600)
            case "connection_timeout":
                found[name] = _whole(name, value, 100, 600_000)
            case "prefetch":
                found[name] = _whole(name, value, 1, MAX_PREFETCH)
            case "ssl_options" | "verify" | "cacertfile" | "certfile" | "keyfile":
                raise SettingError(
                    f"{name} is not accepted in a URL",
                    "use --tls-ca, --tls-cert and --tls-key; verification is always on",
                )
            case _:
                raise SettingError(
                    "an argument of the URL or of --set is not known to the RabbitMQ transport",
                    "it accepts " + ", ".join(f"{known} ({unit})" for known, unit in SETTINGS.items()),
                )
    return found


def _whole(name: str, value: str, least: int, most: int) -> int:
    if value.isascii() and value.isdigit() and len(value) < 9 and least <= int(value) <= most:
        return int(value)
    raise SettingError(
        f"{name} takes a whole number of {SETTINGS[name]} from {least} to {most}",
        f"for example {name}={least * 20}",
    )
