"""What is known of RabbitMQ before a connection is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.deadletters.prospect import Prospect
from chronicle.core.machine import Table
from chronicle.transports.broker import Broker, DeadLetterCheck, Stopping, UrlFacts
from chronicle.transports.rabbitmq.options import OPTIONS, SETTINGS
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step


def check_url(url: str, settings: Mapping[str, str], _choices: Mapping[str, Any]) -> UrlFacts:
    """Read the address; warn when a password would cross a network unencrypted (Z9)."""
    from chronicle.transports.rabbitmq.address import address_of

    address = address_of(url, settings)
    if address.tls or address.loopback or not address.given_password:
        return UrlFacts(address.prefetch)
    return UrlFacts(
        address.prefetch,
        ("the password goes to the broker unencrypted; use amqps:// for a broker on another machine",),
    )


def states() -> Mapping[str, Table]:
    from chronicle.transports.rabbitmq.states import RABBIT

    return {"RabbitMQ": RABBIT}


def transport(connector: Connector) -> Transport:
    from chronicle.transports.rabbitmq.lean_pika import import_pika

    if connector.retry_delays:
        _check_retry_queues(connector)
    import_pika()  # before others do
    from chronicle.transports.rabbitmq.consumer import RabbitTransport

    return RabbitTransport(connector)


def _check_retry_queues(connector: Connector) -> None:
    """SettingError for a queue whose retry queues need names that are too long."""
    from chronicle.core.topology import MaxAttempts, QueueOptions
    from chronicle.core.topology import plan as planned

    retry = MaxAttempts(delays=connector.retry_delays)
    planned(connector.queue, QueueOptions(retry=retry, only_retry=True))


def publisher(connector: Connector, stopping: Stopping) -> Publisher:
    from chronicle.transports.rabbitmq.publisher import RabbitPublisher

    return RabbitPublisher(connector, stopping)


def reader(connector: Connector, reading: Reading) -> Reader:
    from chronicle.transports.rabbitmq.reader import RabbitReader

    return RabbitReader(connector, reading)


def has_queue(connector: Connector, stopping: Stopping) -> bool:
    from chronicle.transports.rabbitmq.topology import has_queue

    return has_queue(connector, stopping)


def plan(connector: Connector) -> tuple[Step, ...]:
    from chronicle.core.topology import QueueOptions
    from chronicle.core.topology import plan as planned

    return planned(connector.queue, connector.declare or QueueOptions())


def declare(connector: Connector, stopping: Stopping) -> tuple[tuple[Step, Done], ...]:
    from chronicle.transports.rabbitmq.topology import declare

    return declare(connector, plan(connector), stopping)


def ask(connector: Connector, management_url: str) -> Prospect:
    from chronicle.transports.rabbitmq.preflight import preflight

    return preflight(connector, management_url)


def check_management_url(management_url: str, url: str) -> tuple[str, ...]:
    from chronicle.transports.rabbitmq.address import address_of
    from chronicle.transports.rabbitmq.management import management_of

    if not management_of(management_url, address_of(url)).readable:
        return ()
    return ("the password goes to the management API unencrypted; use https:// for it",)


BROKER: Final = Broker(
    title="RabbitMQ",
    schemes=("amqp", "amqps"),
    secure_schemes=("amqps",),
    example="amqp://user@host/vhost",
    settings=SETTINGS,
    options=OPTIONS,
    states=states,
    marks="RabbitMQ marks messages that were looked at as redelivered",
    marks_mean="until they are settled they get no second try from requeue-once, and a quorum queue counts "
    "this as a try towards its delivery limit",
    loggers=("pika",),
    telltale_loggers=("pika.channel",),
    check_url=check_url,
    transport=transport,
    publisher=publisher,
    reader=reader,
    has_queue=has_queue,
    plan=plan,
    declare=declare,
    dead_letter_check=DeadLetterCheck(
        ask=ask,
        check_url=check_management_url,
    ),
)
