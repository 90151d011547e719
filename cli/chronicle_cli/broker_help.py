"""What the help says about the brokers in the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from chronicle.transports.catalog import brokers


def broker_urls() -> Iterator[str]:
    """An example URL for each."""
    for broker in brokers():
        secure = "".join(f", or {scheme}:// with TLS" for scheme in broker.secure_schemes)
        yield f"{broker.example}{secure} ({broker.title})"


def broker_settings() -> Iterator[str]:
    """What --set accepts, for brokers that have settings."""
    for broker in brokers():
        if broker.settings:
            taken = ", ".join(f"{name} ({meaning})" for name, meaning in broker.settings.items())
            yield f"{broker.title}: {taken}"
