"""The brokers chronicle supports, and which of them a URL refers to."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from chronicle.errors import SettingError
from chronicle.transports.broker import Broker
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport, never

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step

# Each of these modules has a BROKER; this is the line that a new one needs.
RECORDS: Final = (
    "chronicle.transports.rabbitmq.broker",
    "chronicle.transports.redis.broker",
    "chronicle.transports.kafka.broker",
    "chronicle.transports.local.broker",
)


@cache
def brokers() -> tuple[Broker, ...]:
    """The record of every broker."""
    return tuple(import_module(record).BROKER for record in RECORDS)


def usual_url() -> str:
    """The URL that is used when none is given."""
    return next(broker.usual_url for broker in brokers() if broker.usual_url)


def scheme_of(url: str) -> str:
    """The scheme of a supported URL; SettingError for any other. The URL itself is never repeated."""
    known = [scheme for broker in brokers() for scheme in broker.schemes]
    found = re.match(r"([a-z][a-z0-9+.-]{0,15}):", url, re.ASCII | re.IGNORECASE)
    if found is None:
        examples = " or ".join(broker.example for broker in brokers())
        raise SettingError("the URL has no scheme", f"begin it with one, for example {examples}")
    scheme = found[1].lower()
    if scheme not in known:
        raise SettingError(
            f"the URL's scheme {scheme!r} is not supported", f"supported schemes: {', '.join(known)}"
        )
    return scheme


def broker_of(url: str) -> Broker:
    """The broker that a URL refers to."""
    scheme = scheme_of(url)
    return next(broker for broker in brokers() if scheme in broker.schemes)


def open_transport(connector: Connector) -> Transport:
    """The transport for this URL, not yet connected."""
    return broker_of(connector.url).transport(connector)


def open_publisher(connector: Connector, stopping: Callable[[], bool] = never) -> Publisher:
    """The publisher for this URL; it connects when it is entered, unless `stopping()` turns true before."""
    return broker_of(connector.url).publisher(connector, stopping)


def open_reader(connector: Connector, reading: Reading) -> Reader:
    """The reader for this URL, not yet connected."""
    return broker_of(connector.url).reader(connector, reading)


def planned_topology(connector: Connector) -> tuple[Step, ...]:
    """What `connector.declare` comes to at this broker; connects to nothing."""
    return broker_of(connector.url).plan(connector)


def declare_topology(
    connector: Connector, stopping: Callable[[], bool] = never
) -> tuple[tuple[Step, Done], ...]:
    """Create what is missing of the planned topology; what became of each step.

    BrokerRefused explains what exists but differs; then nothing was changed. BrokerUnreachable when there
    was no answer before `stopping()` turned true.
    """
    return broker_of(connector.url).declare(connector, stopping)
