"""Which transport a URL means. A transport's room is entered only when its URL is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from chronicle.core.topology import Done, QueueOptions, Step, plan
from chronicle.errors import SettingError
from chronicle.transports.seam import Connector, Publisher, Transport, never

KNOWN: Final = ("amqp", "amqps", "local")
LATER: Final = ("redis", "rediss", "kafka", "kafka+ssl")


def scheme_of(url: str) -> str:
    """The scheme of a URL chronicle can use; SettingError for any other. The URL is never repeated."""
    found = re.match(r"([a-z][a-z0-9+.-]{0,15}):", url, re.ASCII | re.IGNORECASE)
    if found is None:
        raise SettingError(
            "the URL has no scheme",
            "begin it with amqp://, amqps:// or local: — for example local:chronicle.db",
        )
    scheme = found[1].lower()
    if scheme in LATER:
        raise SettingError(f"{scheme} is not in this version", f"known schemes: {', '.join(KNOWN)}")
    if scheme not in KNOWN:
        raise SettingError(f"the URL's scheme {scheme!r} is not known", f"known schemes: {', '.join(KNOWN)}")
    return scheme


def open_transport(connector: Connector) -> Transport:
    """The transport for this URL, not yet connected."""
    if scheme_of(connector.url) == "local":
        from chronicle.transports.local import LocalTransport

        return LocalTransport(connector)
    from chronicle.transports.rabbitmq.consumer import RabbitTransport

    return RabbitTransport(connector)


def open_publisher(connector: Connector, stopping: Callable[[], bool] = never) -> Publisher:
    """The publisher for this URL; it connects when it is entered, unless `stopping()` turns true before."""
    if scheme_of(connector.url) == "local":
        from chronicle.transports.local import LocalPublisher

        return LocalPublisher(connector)
    from chronicle.transports.rabbitmq.publisher import RabbitPublisher

    return RabbitPublisher(connector, stopping)


def planned_topology(connector: Connector) -> tuple[Step, ...]:
    """What `connector.declare` comes to at this broker; connects to nothing."""
    if scheme_of(connector.url) == "local":
        from chronicle.transports.local.topology import planned

        return planned(connector)
    return plan(connector.queue, connector.declare or QueueOptions())


def declare_topology(
    connector: Connector, stopping: Callable[[], bool] = never
) -> tuple[tuple[Step, Done], ...]:
    """Make what is missing of the planned topology; what became of each step.

    BrokerRefused explains what is there and differs; then nothing was changed. BrokerUnreachable when there
    was no answer before `stopping()` turned true.
    """
    if scheme_of(connector.url) == "local":
        from chronicle.transports.local.topology import declare as declare_local

        return declare_local(connector)
    from chronicle.transports.rabbitmq.topology import declare as declare_rabbit

    return declare_rabbit(connector, planned_topology(connector), stopping)
