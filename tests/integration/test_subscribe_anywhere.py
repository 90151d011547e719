"""`subscribe` on every transport: the same loop, and what one cannot do is refused with the reason."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle import (
    Disabled,
    MaxAttempts,
    QueueOptions,
    RoutingKey,
    SettingError,
    run,
    subscribe,
)
from chronicle.transports.catalog import open_publisher, open_reader
from chronicle.transports.seam import Connector, Outgoing, Reading, never
from support.redis_server import RedisServer

SOON: Final = QueueOptions(retry=MaxAttempts(2, (0.05,)))
PLACES: Final[dict[str, Callable[[pytest.FixtureRequest, Path], str]]] = {
    "local": lambda request, folder: f"local:{folder / 'q.db'}",
    "rabbitmq": lambda request, folder: str(request.getfixturevalue("rabbit").url),
    "redis": lambda request, folder: str(request.getfixturevalue("redis_server").url),
    "kafka": lambda request, folder: str(request.getfixturevalue("kafka").url),
}


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return PLACES[request.param](request, tmp_path)


def bodies_in(url: str, queue: str) -> list[bytes]:
    reader = open_reader(Connector(url, queue), Reading())
    reader.open(never)
    try:
        found: list[bytes] = []
        while (batch := reader.read(100, 1.0)) is not None:
            found += [delivery.body for delivery in batch]
        return found
    finally:
        reader.close()


def test_the_same_loop_everywhere(url: str) -> None:
    """R-003-14, 22 to 24: acknowledged, tried twice and dead-lettered, and rejected at once."""
    queue = f"anywhere.{secrets.token_hex(4)}"
    tries: list[tuple[int, int]] = []
    with subscribe(url, queue, RoutingKey(queue, dict), SOON) as messages:
        with open_publisher(Connector(url, queue)) as publisher:
            publisher.publish([Outgoing(b'{"id": %d}' % number) for number in range(30)])
        wanted = 31
        for message in messages:
            number: int = message.value["id"]
            tries.append((number, message.attempts))
            match number:
                case 7:
                    message.nack("seven")
                case 8:
                    message.reject("eight")
                case _:
                    message.ack()
            if len(tries) == wanted:
                break
    assert sorted(tries) == sorted([*((number, 1) for number in range(30)), (7, 2)])
    assert messages.ending is not None
    counters = messages.ending.counters
    assert (counters.ack, counters.retried, counters.dead_lettered) == (28, 1, 2)
    assert sorted(bodies_in(url, f"{queue}.dlq")) == [b'{"id": 7}', b'{"id": 8}']


def test_what_was_not_settled_comes_again(url: str) -> None:
    """D-11: leaving the block loses nothing."""
    queue = f"again.{secrets.token_hex(4)}"
    with subscribe(url, queue, RoutingKey(queue, dict), SOON, prefetch=3) as messages:
        with open_publisher(Connector(url, queue)) as publisher:
            publisher.publish([Outgoing(b'{"id": %d}' % number) for number in range(6)])
        for number, message in enumerate(messages, 1):
            if number == 2:
                message.ack()
                acked = message.value["id"]
                break
    left = set[int]()
    with subscribe(url, queue, RoutingKey(queue, dict), SOON, prefetch=3) as messages:
        for message in messages:
            left.add(message.value["id"])
            message.ack()
            if len(left) == 5:
                break
    assert left == set(range(6)) - {acked}


REFUSED: Final[list[tuple[str, QueueOptions, dict[str, Any], str]]] = [
    ("local:q.db", QueueOptions(exchange="shop"), {}, "^exchange has no effect: the embedded queue"),
    ("local:q.db", QueueOptions(ttl=5.0), {}, "^ttl has no effect"),
    ("local:q.db", QueueOptions(dead_letter=Disabled()), {}, "^no_dead_letter and"),
    ("kafka://h", QueueOptions(ttl=5.0), {}, "^ttl has no effect: a topic"),
    ("redis://h", QueueOptions(), {"mode": "pubsub"}, "^redis keeps nothing to be settled"),
    ("amqp://h/", QueueOptions(), {"group": "crm"}, "^group has no effect on RabbitMQ"),
    ("amqp://h/", QueueOptions(), {"order": "key"}, "^order key cannot be honoured by RabbitMQ"),
    ("local:q.db", QueueOptions(), {"tls_ca": "ca.pem"}, "^tls_ca and tls_cert have no effect"),
    ("gopher://h", QueueOptions(), {}, "scheme 'gopher' is not supported"),
]


@pytest.mark.parametrize(("url", "options", "settings", "why"), REFUSED)
def test_what_a_broker_cannot_do_is_refused_with_the_reason(
    url: str, options: QueueOptions, settings: dict[str, Any], why: str
) -> None:
    """Rule 4 of the seam: before anything is reached, and in a program's words."""
    with pytest.raises(SettingError, match=why):
        subscribe(url, "q", RoutingKey("q", dict), options, **settings)


def test_channels_are_for_run(redis_server: RedisServer) -> None:
    """At most once: there is nothing to settle, so a syncer is simply called."""
    queue = f"channel.{secrets.token_hex(4)}"
    ending = run(
        redis_server.url, queue, lambda _message: True, schema="json", mode="pubsub", idle_timeout=0.2
    )
    assert ending.code == 0
