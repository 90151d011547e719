"""Hosts that brokers are on."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from chronicle.core.frozen import frozen
from chronicle.core.urls import Url, split_url
from chronicle.errors import SettingError


@frozen
class Host:
    """One server that a URL names."""

    name: str
    port: int

    def __str__(self) -> str:
        """Fit to print."""
        shown = f"[{self.name}]" if ":" in self.name else self.name
        return f"{shown}:{self.port}"


ENCODE: Final = (
    "percent-encode special characters in its user name or password (/ is %2F, # is %23, @ is %40)"
)
CUT_SHORT: Final = "the URL has an @ behind its hosts, so its password may have been taken for a host"
UNREADABLE: Final = "the URL cannot be read: its host or port is wrong"


def parts_of(url: str) -> Url:
    """The parts of a broker's URL; SettingError if its password ends too early.

    A / or ? in a password ends the hosts, and a # everything: what is left of it must not pass for a name.
    """
    parts = split_url(url)
    if "@" in parts.path or "@" in parts.query:
        raise SettingError(CUT_SHORT, ENCODE)
    if "#" in url:
        raise SettingError("the URL has a # in it", ENCODE)
    return parts


def host_of(text: str, usual_port: int, forms: str) -> Host:
    """One host of a URL that names several; `forms` are its forms, for a remedy."""
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        # The exception quotes what it could not read, which may be half a password.
        raise SettingError(UNREADABLE, ENCODE) from None
    if not name:
        raise SettingError("the URL names no host", f"write {forms}; the password goes in CHRONICLE_PASSWORD")
    if not name.isprintable() or any(sign.isspace() for sign in name):
        raise SettingError("a host in the URL contains blanks or control characters", f"write {forms}")
    return Host(name, port or usual_port)


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine, so that a password does not cross a network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
