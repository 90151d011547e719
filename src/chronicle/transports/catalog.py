"""The brokers chronicle supports, and which of them a URL refers to."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from chronicle.core.order import EXAMPLE, FIELD_FORM, ORDER_FORMS, LaneOf, OrderKind, parse_order
from chronicle.core.queues import check_dead_letters_fit
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


def open_transport(connector: Connector, broker: Broker | None = None) -> Transport:
    """The transport for this URL, not yet connected; in lanes, if an order is wanted.

    A `broker` that is in nobody's catalog has no URL.
    """
    broker = broker or broker_of(connector.url)
    lane_of = lanes_by(broker, connector.order)
    check_letters(connector, broker)
    transport = broker.transport(connector)
    if lane_of is None and transport.promises.requeues:
        return transport
    from chronicle.transports.lanes import Lanes, no_lane  # most runs never need it

    return Lanes(transport, lane_of or no_lane)


def check_letters(connector: Connector, broker: Broker) -> None:
    """SettingError for a queue whose dead letters would be kept, but where nobody could ask for them."""
    if broker.keeps_beside(connector.choices):
        check_dead_letters_fit(connector.queue)


def lanes_by(broker: Broker, text: str) -> LaneOf | None:
    """What tells the lanes apart in this order, by default the broker's own; None if there are none.

    SettingError for an order that this broker does not have.
    """
    try:
        order = parse_order(text or broker.usual_order)
    except ValueError as error:
        raise SettingError("--order is not an order", f"it takes {error}") from None
    if order.kind is OrderKind.NONE:
        return None
    if order.kind is OrderKind.FIELD:
        return order.lane_by_field
    if order.kind not in broker.orders:
        forms = ", ".join(
            form for form in ORDER_FORMS if form in (OrderKind.NONE, FIELD_FORM, *broker.orders)
        )
        raise SettingError(
            f"--order {order.kind} cannot be honoured by {broker.title}: its messages have no {order.kind}",
            f"it takes {forms}, such as {EXAMPLE}",
        )
    return broker.orders[order.kind]


def open_publisher(connector: Connector, stopping: Callable[[], bool] = never) -> Publisher:
    """The publisher for this URL; it connects when it is entered, unless `stopping()` turns true before."""
    return broker_of(connector.url).publisher(connector, stopping)


def open_reader(connector: Connector, reading: Reading) -> Reader:
    """The reader for this URL, not yet connected."""
    return broker_of(connector.url).reader(connector, reading)


def planned_topology(connector: Connector) -> tuple[Step, ...]:
    """What `connector.declare` comes to at this broker; connects to nothing."""
    broker = broker_of(connector.url)
    check_letters(connector, broker)
    return broker.plan(connector)


def declare_topology(
    connector: Connector, stopping: Callable[[], bool] = never
) -> tuple[tuple[Step, Done], ...]:
    """Create what is missing of the planned topology; what became of each step.

    BrokerRefused explains what exists but differs; then nothing was changed. BrokerUnreachable when there
    was no answer before `stopping()` turned true.
    """
    broker = broker_of(connector.url)
    check_letters(connector, broker)
    return broker.declare(connector, stopping)
