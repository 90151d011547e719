"""What is known about the embedded queue before its file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.states import EMBEDDED
from chronicle.errors import SettingError
from chronicle.transports.broker import Broker, Stopping, UrlFacts
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step

KEEPS_DEAD_LETTERS: Final = "it keeps dead letters itself"


def check_url(url: str, _settings: Mapping[str, str], _choices: Mapping[str, Any]) -> UrlFacts:
    """Check that the URL names a file; nothing else matters."""
    if not url.partition(":")[2].strip("/"):
        raise SettingError("the URL names no file", f"write local:FILE, for example {BROKER.usual_url}")
    return UrlFacts()


def transport(connector: Connector) -> Transport:
    from chronicle.transports.local.consumer import LocalTransport

    return LocalTransport(connector)


def publisher(connector: Connector, _stopping: Stopping) -> Publisher:
    from chronicle.transports.local.publisher import LocalPublisher

    return LocalPublisher(connector)


def reader(connector: Connector, reading: Reading) -> Reader:
    from chronicle.transports.holding_reader import HoldingReader
    from chronicle.transports.local.consumer import LocalTransport

    return HoldingReader(LocalTransport, connector, reading)


def has_queue(connector: Connector, _stopping: Stopping) -> bool:
    from chronicle.transports.local.topology import has_queue

    return has_queue(connector)


def plan(connector: Connector) -> tuple[Step, ...]:
    from chronicle.transports.local.topology import planned

    return planned(connector)


def declare(connector: Connector, _stopping: Stopping) -> tuple[tuple[Step, Done], ...]:
    from chronicle.transports.local.topology import declare

    return declare(connector)


BROKER: Final = Broker(
    title="the embedded queue",
    schemes=("local",),
    example="local:FILE",
    usual_url="local:chronicle.db",
    states=lambda: {"The embedded queue": EMBEDDED},
    refuses={
        "only_retry": "it delays messages itself",
        "management_url": KEEPS_DEAD_LETTERS,
        "allow_drop": KEEPS_DEAD_LETTERS,
    },
    unhonoured={
        "exchange": "--exchange has no effect: the embedded queue has no exchanges",
        "ttl": "--ttl has no effect: the embedded queue keeps a message until it is consumed",
        "dead_letter": "--no-dead-letter and --dead-letter-… have no effect: the embedded queue keeps dead "
        "letters, in QUEUE.dlq",
        "queue_type": "--queue-type has no effect: there is one type of queue",
        "durable": "--no-durable has no effect: the embedded queue is a file",
        "retry": "--retry-delay needs no queues: the embedded queue delays messages itself",
    },
    check_url=check_url,
    transport=transport,
    publisher=publisher,
    reader=reader,
    has_queue=has_queue,
    plan=plan,
    declare=declare,
    keeps_beside=lambda _choices: True,
)
