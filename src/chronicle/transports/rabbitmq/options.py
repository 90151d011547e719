"""What the command line knows of RabbitMQ: settings, options. Read with every broker, so it is short."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.transports.broker import BrokerOption, OptionKind

# What the URL's arguments and `--set` accept; the units are those of RabbitMQ's own list of URI arguments.
SETTINGS: Final = {
    "heartbeat": "seconds",
    "connection_timeout": "milliseconds",
    "prefetch": "messages",
}
DEAD_LETTERS: Final = "dead_letters"


class Way(StrEnum):
    """Who moves dead letters (D-22)."""

    AUTO = "auto"
    CHRONICLE = "chronicle"
    BROKER = "broker"


OPTIONS: Final = (
    BrokerOption(
        name=DEAD_LETTERS,
        kind=OptionKind.CHOICE,
        values=tuple(Way),
        usual=Way.AUTO,
        commands=frozenset(("consume",)),
        help="Who moves dead letters. chronicle: a confirmed copy with the reason goes to QUEUE.dlq, which "
        "must exist. broker: they are rejected, and the queue's dead-letter exchange decides; without one "
        "the broker deletes them. auto: chronicle, if QUEUE.dlq exists and this user may publish; else "
        "broker.",
    ),
)
