"""What the command line knows of Redis: URLs, settings, options. Read with every broker, so it is short."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from chronicle.transports.broker import BrokerOption, OptionKind

SCHEMES: Final = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
SECURE: Final = tuple(scheme for scheme in SCHEMES if scheme.startswith("rediss"))
# What --set takes, with the unit.
SETTINGS: Final = {"connection_timeout": "milliseconds", "prefetch": "messages"}
LIVELY: Final = 2.0  # seconds; a consumer may be silent that long, so nothing is claimed sooner


class Mode(StrEnum):
    """What the queue is."""

    STREAM = "stream"
    PUBSUB = "pubsub"


def _for(*commands: str) -> frozenset[str]:
    return frozenset(commands)


OPTIONS: Final = (
    BrokerOption(
        name="mode",
        kind=OptionKind.CHOICE,
        values=tuple(Mode),
        usual=Mode.STREAM,
        commands=_for("consume", "capture", "publish", "declare", "dlq"),
        help="What the queue is. stream: an entry waits until it is acknowledged. pubsub: one or more "
        "channels, separated by commas, patterns with *?[ allowed; at most once: what is published while "
        "nobody listens, or is not finished, is lost.",
    ),
    BrokerOption(
        name="group",
        metavar="NAME",
        usual="chronicle",
        commands=_for("consume", "capture", "declare", "dlq"),
        help="The consumer group. consume and declare create a missing one, which begins with the oldest "
        "entry of the stream.",
    ),
    BrokerOption(
        name="no_group",
        kind=OptionKind.FLAG,
        commands=_for("consume", "capture"),
        help="Read the stream without a group: nothing is acknowledged, and every such consumer gets every "
        "entry.",
    ),
    BrokerOption(
        name="from",
        metavar="start|end|ID",
        usual="start",
        commands=_for("consume", "declare"),
        help="Where to begin in the stream: for a group that is created, or without a group.",
    ),
    BrokerOption(
        name="cursor",
        metavar="KEY",
        commands=_for("consume"),
        help="Without a group: keep the position in this key, so that the next run continues there.",
    ),
    BrokerOption(
        name="field",
        metavar="NAME",
        usual="data, else payload",
        commands=_for("consume", "capture", "publish", "dlq"),
        help="The field of an entry that has the message; the others are its headers.",
    ),
    BrokerOption(
        name="claim_idle",
        kind=OptionKind.DURATION,
        metavar="DURATION",
        usual="60s",
        commands=_for("consume"),
        help="Take over entries that another consumer of the group has not touched for this long: it is "
        "dead. A consumer touches what it holds all the time, however slow the syncer is. At least "
        f"{LIVELY:g}s are waited in any case.",
    ),
    BrokerOption(
        name="maxlen",
        kind=OptionKind.COUNT,
        metavar="N",
        commands=_for("publish"),
        help="Trim the stream to about this many entries, the oldest first, whether or not they were read.",
    ),
)
