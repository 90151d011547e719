"""The options that only RabbitMQ has."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.transports.broker import BrokerOption, OptionKind

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
