"""The record of a broker that does not exist, for tests of what the command line does with any record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from chronicle.core.states import EMBEDDED
from chronicle.core.topology import Done, Queue, Step
from chronicle.errors import SettingError
from chronicle.transports.broker import Broker, BrokerOption, OptionKind, Stopping, UrlFacts
from chronicle.transports.holding_reader import HoldingReader
from chronicle.transports.memory import MemoryTransport
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport


def check_url(url: str, settings: Mapping[str, str], choices: Mapping[str, Any]) -> UrlFacts:
    if not set(settings) <= set(BROKER.settings):
        raise SettingError("a setting is not known to toys", "leave it out")
    if choices.get("wind_up") == 0.0:
        raise SettingError("--wind-up takes more than 0", "wind it up")
    return UrlFacts(warnings=("toys break",) if url.startswith("toy:") else ())


def transport(_connector: Connector) -> Transport:
    return MemoryTransport(())


def publisher(_connector: Connector, _stopping: Stopping) -> Publisher:
    raise NotImplementedError


def reader(connector: Connector, reading: Reading) -> Reader:
    return HoldingReader(transport, connector, reading)


def plan(connector: Connector) -> tuple[Step, ...]:
    return (Queue(connector.queue, arguments=dict(connector.choices)),)


def has_queue(_connector: Connector, _stopping: Stopping) -> bool:
    return True


def declare(connector: Connector, _stopping: Stopping) -> tuple[tuple[Step, Done], ...]:
    return tuple((step, Done.MADE) for step in plan(connector))


BROKER: Final = Broker(
    title="the toy box",
    schemes=("toy", "toys", "toy+shelf"),
    secure_schemes=("toys",),
    example="toy://box",
    more_examples=("toy+shelf://top,bottom",),
    settings={"colour": "of the box"},
    states=lambda: {"The toy box": EMBEDDED},
    options=(
        BrokerOption(
            name="wind_up",
            kind=OptionKind.DURATION,
            commands=frozenset({"declare"}),
            help="How long to wind it up.",
            usual="30s",
        ),
    ),
    refuses={"only_retry": "toys are not tried again"},
    unhonoured={"ttl": "--ttl has no effect: toys last"},
    check_url=check_url,
    transport=transport,
    publisher=publisher,
    reader=reader,
    has_queue=has_queue,
    plan=plan,
    declare=declare,
)
