"""Which transport a URL means. A transport's room is entered only when its URL is used."""

from __future__ import annotations

import re
from typing import Final

from chronicle.errors import SettingError
from chronicle.transports.seam import Connector, Publisher, Transport

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


def open_publisher(connector: Connector) -> Publisher:
    """The publisher for this URL; it connects when it is entered."""
    if scheme_of(connector.url) == "local":
        from chronicle.transports.local import LocalPublisher

        return LocalPublisher(connector)
    from chronicle.transports.rabbitmq.publisher import RabbitPublisher

    return RabbitPublisher(connector)
