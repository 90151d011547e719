"""What a queue needs in Redis: a stream and its group. Dead letters and delays make their keys themselves."""

from __future__ import annotations

from collections.abc import Callable

from chronicle.core.topology import Done, Queue, Step
from chronicle.errors import BrokerRefused, NoSuchQueue, SettingError
from chronicle.transports.redis.address import address_of
from chronicle.transports.redis.answers import BUSY_GROUP, OOM, word_of
from chronicle.transports.redis.choices import choices_of
from chronicle.transports.redis.connection import Wire
from chronicle.transports.redis.discovery import connect
from chronicle.transports.redis.keys import Keys, check_slot
from chronicle.transports.redis.options import Mode
from chronicle.transports.seam import Connector, never
from chronicle.transports.tls import tls_context


def planned(connector: Connector) -> tuple[Step, ...]:
    """The stream with its group, whatever else was asked for."""
    choices = choices_of(connector.choices)
    if choices.mode is Mode.PUBSUB:
        raise SettingError("a channel cannot be declared", "it exists as long as somebody listens")
    return (Queue(connector.queue, {"group": choices.group}, durable=None),)


def declare(connector: Connector, stopping: Callable[[], bool] = never) -> tuple[tuple[Step, Done], ...]:
    """Create the stream and its group, if they are missing."""
    steps = planned(connector)
    choices = choices_of(connector.choices)
    address = address_of(connector.url, connector.extras)
    check_slot(address, connector.queue)
    context = tls_context(connector.tls) if address.tls else None
    wire = connect(address, connector.queue, context, name=connector.tag, stopping=stopping)
    try:
        assert choices.group is not None
        made = make_group(
            wire, Keys(connector.queue, choices.group), choices.start, create_stream=True, stopping=stopping
        )
    finally:
        wire.close()
    return tuple((step, Done.MADE if made else Done.THERE) for step in steps)


def make_group(
    wire: Wire,
    keys: Keys,
    start: str,
    *,
    create_stream: bool,
    stopping: Callable[[], bool],
) -> bool:
    """Create the group if it is missing, and the stream if asked for; whether the group is new.

    Raises NoSuchQueue when there is no stream, BrokerRefused when a key of the queue is something else.
    """
    check_kinds(wire, keys, stopping, create_stream=create_stream)
    command = ["XGROUP", "CREATE", keys.stream, keys.group, start]
    if create_stream:
        command.append("MKSTREAM")
    (answer,) = wire.ask(tuple(command), stopping=stopping)
    if isinstance(answer, Exception):
        word = word_of(answer)
        if word == BUSY_GROUP or (word == OOM and _has_group(wire, keys, stopping)):
            return False
        raise wire.trouble(answer)
    return True


def _has_group(wire: Wire, keys: Keys, stopping: Callable[[], bool]) -> bool:
    """A server without memory does not even look whether the group is there."""
    (answer,) = wire.ask(("XINFO", "GROUPS", keys.stream), stopping=stopping)
    return not isinstance(answer, Exception) and any(facts[1] == keys.group.encode() for facts in answer)


def has_stream(connector: Connector, stopping: Callable[[], bool]) -> bool:
    """Whether there is such a stream."""
    address = address_of(connector.url, connector.extras)
    context = tls_context(connector.tls) if address.tls else None
    wire = connect(address, connector.queue, context, name=connector.tag, stopping=stopping)
    try:
        (kind,) = map(wire.value, wire.ask(("TYPE", connector.queue), stopping=stopping))
        return bool(kind == b"stream")
    finally:
        wire.close()


def check_kinds(wire: Wire, keys: Keys, stopping: Callable[[], bool], *, create_stream: bool = False) -> None:
    """Check that the keys of this queue are what they must be, or not there."""
    wanted = {keys.stream: b"stream", keys.dead_letters: b"stream", keys.waiting: b"zset"}
    kinds = wire.ask(*(("TYPE", key) for key in wanted), stopping=stopping)
    for (key, kind), found in zip(wanted.items(), map(wire.value, kinds), strict=True):
        if found not in (kind, b"none"):
            raise no_such_kind(wire, key, found, "sorted set" if kind == b"zset" else "stream")
        if key == keys.stream and found == b"none" and not create_stream:
            raise no_stream(wire, keys.stream)


def no_such_kind(wire: Wire, key: str, found: bytes, wanted: str = "stream") -> BrokerRefused:
    """The error when a key is something else."""
    return BrokerRefused(
        f"{wire.address.place}: the key {key!r} is a {found.decode()}, not a {wanted}",
        "rename that key, or choose another --queue",
    )


def no_stream(wire: Wire, stream: str) -> NoSuchQueue:
    """The error when there is no such stream."""
    return NoSuchQueue(
        f"{wire.address.place}: there is no stream {stream!r}",
        "check --queue and the database at the end of the URL, or create it: chronicle declare, or --declare",
    )
