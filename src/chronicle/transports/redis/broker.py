"""What is known of Redis before a connection is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from chronicle.core.machine import Table
from chronicle.errors import SettingError
from chronicle.transports.broker import Broker, Stopping, UrlFacts
from chronicle.transports.redis.options import OPTIONS, SCHEMES, SECURE, SETTINGS, Mode
from chronicle.transports.seam import Connector, Publisher, Reader, Reading, Transport

if TYPE_CHECKING:  # plans are made by few commands
    from chronicle.core.topology import Done, Step

KEEPS_DEAD_LETTERS: Final = "chronicle keeps dead letters itself, in the stream QUEUE.dlq"
AT_MOST_ONCE: Final = (
    "pub/sub is at most once: what is published while nobody listens, or is not finished when this process "
    "ends, is lost; use a stream for what must arrive"
)
NO_LOOP: Final = "there is no dead-letter exchange to go round in; use --on-failure retry:N"


def check_url(url: str, settings: Mapping[str, str], chosen: Mapping[str, Any]) -> UrlFacts:
    """Read the address and the choices; warn when a password would cross a network unencrypted (Z9)."""
    from chronicle.transports.redis.address import address_of
    from chronicle.transports.redis.choices import choices_of

    address = address_of(url, settings)
    choices = choices_of(chosen)
    warnings: tuple[str, ...] = ()
    if choices.mode is Mode.PUBSUB:
        warnings += (AT_MOST_ONCE,)
    if address.password and not address.tls and not address.loopback:
        warnings += (
            "the password goes to the server unencrypted; use rediss:// for a server on another machine",
        )
    return UrlFacts(address.prefetch, warnings)


def states() -> Mapping[str, Table]:
    from chronicle.transports.redis.states import REDIS

    return {"Redis": REDIS}


def transport(connector: Connector) -> Transport:
    from chronicle.transports.redis.choices import choices_of

    choices = choices_of(connector.choices)
    if choices.mode is Mode.PUBSUB:
        if connector.declare is not None:
            raise SettingError("--declare has no effect with --mode pubsub", "leave it out")
        from chronicle.transports.redis.pubsub import PubSubTransport

        return PubSubTransport(connector)
    if choices.group is None:
        from chronicle.transports.redis.cursor import CursorTransport

        return CursorTransport(connector)
    from chronicle.transports.redis.consumer import StreamTransport

    return StreamTransport(connector)


def publisher(connector: Connector, stopping: Stopping) -> Publisher:
    from chronicle.transports.redis.publisher import RedisPublisher

    return RedisPublisher(connector, stopping)


def reader(connector: Connector, reading: Reading) -> Reader:
    from chronicle.transports.redis.reader import StreamReader

    return StreamReader(connector, reading)


def has_queue(connector: Connector, stopping: Stopping) -> bool:
    from chronicle.transports.redis.topology import has_stream

    return has_stream(connector, stopping)


def plan(connector: Connector) -> tuple[Step, ...]:
    from chronicle.transports.redis.topology import planned

    return planned(connector)


def declare(connector: Connector, stopping: Stopping) -> tuple[tuple[Step, Done], ...]:
    from chronicle.transports.redis.topology import declare

    return declare(connector, stopping)


def keeps_beside(chosen: Mapping[str, Any]) -> bool:
    """Of streams; nobody keeps what is published to a channel."""
    from chronicle.transports.redis.choices import choices_of

    return choices_of(chosen).mode is Mode.STREAM


BROKER: Final = Broker(
    title="Redis",
    schemes=SCHEMES,
    secure_schemes=SECURE,
    example="redis://user@host:6379/0",
    more_examples=("redis+sentinel://user@h1,h2/SERVICE/0", "redis+cluster://user@h1,h2"),
    settings=SETTINGS,
    options=OPTIONS,
    states=states,
    refuses={
        "only_retry": "entries wait for another try in one sorted set",
        "management_url": KEEPS_DEAD_LETTERS,
        "allow_drop": KEEPS_DEAD_LETTERS,
        "max_retries": NO_LOOP,
        "on_exhausted": NO_LOOP,
    },
    unhonoured={
        "exchange": "--exchange has no effect: Redis has no exchanges",
        "ttl": "--ttl has no effect: a stream keeps an entry until it is trimmed",
        "dead_letter": "--no-dead-letter and --dead-letter-… have no effect: chronicle keeps dead letters, "
        "in QUEUE.dlq",
        "queue_type": "--queue-type has no effect: there is one type of stream",
        "durable": "--no-durable has no effect: how durable a stream is, the server's configuration says",
        "retry": "--retry-delay needs no queues: entries wait in one sorted set, QUEUE.retry",
    },
    check_url=check_url,
    transport=transport,
    publisher=publisher,
    reader=reader,
    has_queue=has_queue,
    plan=plan,
    declare=declare,
    keeps_beside=keeps_beside,
)
