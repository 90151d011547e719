"""What the help says about the brokers in the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from chronicle.transports.catalog import brokers


def broker_urls() -> Iterator[str]:
    """Example URLs for each, and its schemes with TLS."""
    for broker in brokers():
        examples = ", ".join((broker.example, *broker.more_examples))
        secure = ", ".join(f"{scheme}://" for scheme in broker.secure_schemes)
        yield f"{broker.title}: {examples}{f' (with TLS: {secure})' if secure else ''}"


def broker_settings() -> Iterator[str]:
    """What --set accepts, for brokers that have settings."""
    for broker in brokers():
        if broker.settings:
            taken = ", ".join(f"{name} ({meaning})" for name, meaning in broker.settings.items())
            yield f"{broker.title}: {taken}"
