"""`chronicle.subscribe` on a real RabbitMQ: document 003 from a program."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from chronicle import (
    AlreadySettled,
    Disabled,
    Event,
    MaxAttempts,
    Message,
    MessageGone,
    QueueOptions,
    RetryPolicy,
    RoutingKey,
    SettingError,
    subscribe,
)
from chronicle.errors import BrokerRefused
from chronicle.telemetry import events
from chronicle.topology import declare
from support.fixtures import Broker
from support.proxy import Proxy
from support.waiting import wait_for

PATIENCE = 60.0
DEAD = ("x-dead-letter-exchange", "x-dead-letter-routing-key")
SOON = MaxAttempts(5, (0.05,))


@dataclass(frozen=True)
class Recipe:
    id: int
    title: str


class Step(TypedDict):
    id: int


@pytest.fixture
def name(rabbit: Broker) -> str:
    """The name of a queue and, with something behind it, of an exchange."""
    return rabbit.queues.name("subscribe")


def body(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, "title": f"recipe {number}", **more}).encode()


def publish(rabbit: Broker, exchange: str, key: str, *bodies: bytes) -> None:
    with rabbit.queues.channel() as channel:
        channel.confirm_delivery()
        for one in bodies:
            channel.basic_publish(exchange, key, one, mandatory=True)


def taken(messages: Iterator[Message[Any]], number: int) -> list[Message[Any]]:
    return [next(messages) for _ in range(number)]


# --- the three usages of 003 ----------------------------------------------------------------------------


def test_R_003_15_the_plain_usage_declares_what_the_defaults_say(
    rabbit: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R-003-2, 5, 6, 12 to 14, 16, 17, 19, 26 to 30: five steps, dead letters on, five tries, no TTL.

    The client has much to say about what was not there; a program that configures no logging sees none of it.
    """
    foodies = f"{name}.foodies"
    with subscribe(
        rabbit.url, name, RoutingKey("recipe.created", Recipe), QueueOptions(exchange=foodies)
    ) as recipes:
        publish(rabbit, foodies, "recipe.created", body(1))
        message = next(recipes)
        assert message.value == Recipe(1, "recipe 1")
        assert message.attempts == 1
        assert message.delivery.origin["routing_key"] == "recipe.created"
        message.ack()
    assert [record.getMessage() for record in caplog.records if record.threadName == "chronicle"] == []
    back = {DEAD[0]: "", DEAD[1]: name}
    api = rabbit.node.api
    assert api.queues(name) == {
        name: {DEAD[0]: f"{foodies}.dlx", DEAD[1]: f"{name}.dlq"},
        f"{name}.dlq": {},
        f"{name}.retry.5s": {**back, "x-message-ttl": 5_000},
        f"{name}.retry.30s": {**back, "x-message-ttl": 30_000},
        f"{name}.retry.5m": {**back, "x-message-ttl": 300_000},
    }
    assert api.exchanges(name) == {foodies: "topic", f"{foodies}.dlx": "topic"}
    assert api.bindings(f"{foodies}.dlx") == [(f"{name}.dlq", f"{name}.dlq")]
    assert api.bindings(foodies) == [(name, "recipe.created")]
    assert rabbit.queues.depth(name) == 0


def test_R_003_15_a_ttl_of_five_minutes(rabbit: Broker, name: str) -> None:
    """R-003-11, 18: in milliseconds, and only because it was asked for."""
    options = QueueOptions(exchange=f"{name}.foodies", ttl=5 * 60)
    with subscribe(rabbit.url, name, RoutingKey("recipe.created", Recipe), options):
        pass
    assert rabbit.node.api.queues(name)[name]["x-message-ttl"] == 300_000


def test_R_003_15_dead_letters_disabled(rabbit: Broker, name: str) -> None:
    """R-003-3, 9: no arguments, exchange or queue for them; a failed message is the broker's to drop."""
    options = QueueOptions(exchange=f"{name}.foodies", dead_letter=Disabled(), retry=RetryPolicy.NONE)
    with subscribe(rabbit.url, name, RoutingKey("recipe.created", Recipe), options) as recipes:
        publish(rabbit, f"{name}.foodies", "recipe.created", body(1))
        next(recipes).nack()
    assert rabbit.node.api.queues(name) == {name: {}}
    assert rabbit.node.api.exchanges(name) == {f"{name}.foodies": "topic"}
    assert rabbit.queues.depth(name) == 0


# --- tries and dead letters -----------------------------------------------------------------------------


def test_R_003_21_to_25_five_tries_then_the_dead_letters(rabbit: Broker, name: str) -> None:
    """R-003-12, 20: `nack()` is all that the program does."""
    seen = []
    with subscribe(rabbit.url, name, RoutingKey(name, Recipe), QueueOptions(retry=SOON)) as recipes:
        rabbit.queues.publish(name, body(1))
        for message in recipes:
            seen.append(message.attempts)
            message.nack("the oven is cold")
            if len(seen) == 5:
                break
        wait_for(lambda: rabbit.queues.depth(f"{name}.dlq") == 1, PATIENCE, "the dead letter")
    assert seen == [1, 2, 3, 4, 5]
    (letter,) = rabbit.queues.get_all(f"{name}.dlq")
    assert letter.body == body(1)
    assert letter.headers["x-chronicle-reason"] == "the oven is cold"
    assert letter.headers["x-chronicle-attempts"] == 5
    assert rabbit.queues.depth(name) == 0


def test_without_retries_the_first_nack_is_the_last(rabbit: Broker, name: str) -> None:
    """R-003-8: RetryPolicy.NONE. What is rejected never had a second try anyway."""
    options = QueueOptions(retry=RetryPolicy.NONE)
    with subscribe(rabbit.url, name, RoutingKey(name, Step), options) as steps:
        rabbit.queues.publish(name, body(1), body(2))
        first, second = taken(steps, 2)
        first.nack()
        second.reject("burnt")
        wait_for(lambda: rabbit.queues.depth(f"{name}.dlq") == 2, PATIENCE, "both dead letters")
    assert rabbit.queues.depth(name) == 0


def test_a_body_that_does_not_decode_is_bad_input(rabbit: Broker, name: str) -> None:
    """R-003-36, D-4: it never reaches the loop, and is dead-lettered after its second try."""
    secret = "eva@example.org"
    told: list[Event] = []
    options = QueueOptions(retry=SOON)
    declare(rabbit.url, name, options)
    rabbit.queues.publish(name, b"no JSON", b'{"id": "%s", "title": ""}' % secret.encode(), body(3))
    with subscribe(
        rabbit.url, name, RoutingKey(name, Recipe), options, until_empty=True, on_event=told.append
    ) as recipes:
        for message in recipes:
            assert message.value.id == 3
            message.ack()
    assert rabbit.queues.depth(f"{name}.dlq") == 2
    reasons = [event.text for event in told if event.name == events.DEAD_LETTERED]
    assert sorted(reasons) == [
        "the body is no Recipe: .id is not a whole number",
        "the body is not JSON (character 0 of 7 bytes)",
    ]
    assert not any(secret in f"{event}" for event in told)


# --- settling -------------------------------------------------------------------------------------------


def test_R_003_25_exactly_one_settles_a_message(rabbit: Broker, name: str) -> None:
    with subscribe(rabbit.url, name, RoutingKey(name, bytes), QueueOptions(retry=SOON)) as messages:
        rabbit.queues.publish(name, b"1")
        message = next(messages)
        message.ack()
        for again in (message.ack, message.nack, lambda: message.reject("late")):
            with pytest.raises(AlreadySettled):
                again()
    assert rabbit.node.counts(name) == (0, 0)
    assert rabbit.queues.depth(f"{name}.dlq") == 0


def test_leaving_the_block_is_an_interruption_and_no_failure(rabbit: Broker, name: str) -> None:
    """D-11: unsettled and unseen messages go back; they are neither tried again nor dead-lettered."""
    with subscribe(rabbit.url, name, RoutingKey(name, bytes), prefetch=10) as messages:
        rabbit.queues.publish(name, *(b"%d" % number for number in range(5)))
        first, second = taken(messages, 2)
        second.ack()
    with pytest.raises(MessageGone):
        first.ack()
    assert messages.ending is not None
    assert (messages.ending.counters.nack, messages.ending.counters.ack) == (0, 1)
    assert [letter.body for letter in rabbit.queues.get_all(name)] == [b"0", b"2", b"3", b"4"]
    assert rabbit.queues.depth(f"{name}.dlq") == 0


def test_an_error_in_the_loop_comes_out_and_the_message_stays(rabbit: Broker, name: str) -> None:
    def fail() -> None:
        with subscribe(rabbit.url, name, RoutingKey(name, bytes)) as messages:
            rabbit.queues.publish(name, b"1")
            for _ in messages:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rabbit.queues.depth(name) == 1


# --- the connection -------------------------------------------------------------------------------------


def test_a_slow_loop_holds_no_more_than_its_window_and_keeps_its_heartbeats(
    rabbit: Broker, name: str
) -> None:
    """RB5, D-7: the broker closes a connection after two missed heartbeats of one second each."""
    told: list[Event] = []
    url = f"{rabbit.url}?heartbeat=1"
    with subscribe(url, name, RoutingKey(name, bytes), prefetch=3, on_event=told.append) as messages:
        rabbit.queues.publish(name, *(b"%d" % number for number in range(10)))
        for number, message in enumerate(messages):
            held = rabbit.node.counts(name)[1]
            assert held <= 3
            if number == 0:
                time.sleep(5.0)  # and nobody asks for the next one
            message.ack()
            if number == 9:
                break
    assert not [event for event in told if event.name == events.LOST]
    wait_for(lambda: rabbit.node.counts(name) == (0, 0), PATIENCE, "an empty queue")


def test_a_broken_connection_inside_the_loop(rabbit: Broker, name: str) -> None:
    """RB2: what came over the old connection can no longer be settled and says so; the loop goes on."""
    handled, gone = [], 0
    with (
        Proxy(rabbit.url) as proxy,
        subscribe(
            proxy.url_for(rabbit.url), name, RoutingKey(name, Recipe), QueueOptions(retry=SOON), prefetch=4
        ) as recipes,
    ):
        rabbit.queues.publish(name, *map(body, range(20)))
        for message in recipes:
            if message.value.id == 7 and not gone:
                proxy.cut()
                wait_for(lambda: rabbit.queues.consumers(name) == 0, PATIENCE, "the broken connection")
                wait_for(lambda: rabbit.queues.consumers(name) == 1, PATIENCE, "the next connection")
                with pytest.raises(MessageGone):
                    message.ack()
                gone += 1
                continue
            handled.append(message.value.id)
            message.ack()
            if set(handled) == set(range(20)):
                break
    assert gone == 1
    wait_for(lambda: rabbit.node.counts(name) == (0, 0), PATIENCE, "an empty queue")


# --- what cannot be ------------------------------------------------------------------------------------


def test_a_queue_with_other_arguments_is_explained(rabbit: Broker, name: str) -> None:
    """R-003-38."""
    rabbit.queues.declare(name)
    with (
        pytest.raises(BrokerRefused, match="x-dead-letter-exchange"),
        subscribe(rabbit.url, name, RoutingKey(name, bytes)),
    ):
        pass


def test_a_routing_key_needs_an_exchange(rabbit: Broker, name: str) -> None:
    with pytest.raises(SettingError, match="a routing key without an exchange"):
        subscribe(rabbit.url, name, RoutingKey("recipe.created", Recipe))
