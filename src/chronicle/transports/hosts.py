"""Hosts that brokers are on."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class Host:
    """One server that a URL names."""

    name: str
    port: int

    def __str__(self) -> str:
        """Fit to print."""
        shown = f"[{self.name}]" if ":" in self.name else self.name
        return f"{shown}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether this name or address means this machine, so that a password does not cross a network."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
