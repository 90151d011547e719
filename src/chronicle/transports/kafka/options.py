"""What the command line knows of Kafka: URLs, settings, options. Read with every broker, so it is short."""

from __future__ import annotations

from typing import Final

from chronicle.transports.broker import BrokerOption, OptionKind

SCHEMES: Final = ("kafka", "kafka+ssl")
SECURE: Final = ("kafka+ssl",)
# What --set takes, for the help.
SETTINGS: Final = {
    "prefetch": "messages",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
    "any setting of librdkafka": "such as max.poll.interval.ms=600000, group.protocol=consumer",
}


def _for(*commands: str) -> frozenset[str]:
    return frozenset(commands)


OPTIONS: Final = (
    BrokerOption(
        name="group",
        metavar="NAME",
        usual="chronicle.TOPIC",
        commands=_for("consume", "capture"),
        help="The consumer group, whose committed offsets say what is done. Use one group for one topic. "
        "capture: copy what this group has not done.",
    ),
    BrokerOption(
        name="from",
        metavar="start|end|TIME",
        usual="start",
        commands=_for("consume", "capture"),
        help="Where a group begins that has committed nothing: the start or the end of the topic, or a time "
        "(2026-03-01T12:00:00Z, or milliseconds since 1970). capture: begin there in any case.",
    ),
    BrokerOption(
        name="key",
        metavar="PATH",
        commands=_for("publish"),
        help="The field of the message that becomes the record's key, such as contact.contactRef: records "
        "with one key stay in order. Without it, a record keeps the key it was captured with.",
    ),
    BrokerOption(
        name="partitions",
        kind=OptionKind.COUNT,
        metavar="N",
        usual="the cluster's",
        commands=_for("declare", "consume"),
        help="How many partitions a topic gets that is created; its dead-letter topic gets as many.",
    ),
    BrokerOption(
        name="replication",
        kind=OptionKind.COUNT,
        metavar="N",
        usual="the cluster's",
        commands=_for("declare", "consume"),
        help="How many copies of each partition the brokers of the cluster keep, of topics that are created.",
    ),
)
