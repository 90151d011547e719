"""What a queue needs, line by line of the design (003), and the words for what differs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chronicle.core.policy import OnFailure, Policy
from chronicle.core.topology import retry_queue
from chronicle.errors import SettingError
from chronicle.topology import (
    Binding,
    Disabled,
    Enabled,
    Exchange,
    MaxAttempts,
    Queue,
    QueueOptions,
    QueueType,
    Step,
    plan,
    policy_of,
)
from chronicle.transports.rabbitmq.topology import difference

SHOP = QueueOptions(exchange="shop", routing_key="order.*", retry=None)
DEAD = {"x-dead-letter-exchange": "shop.dlx", "x-dead-letter-routing-key": "orders.dlq"}
SAFE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def queue_of(steps: tuple[Step, ...], name: str) -> Queue:
    (found,) = [step for step in steps if isinstance(step, Queue) and step.name == name]
    return found


def test_the_five_steps() -> None:
    """R-003-5, 6, 16, 17, 19, 26 to 30, 33: in this order, with these names; the main one is not ours."""
    assert plan("orders", SHOP) == (
        Exchange("shop.dlx", "topic"),
        Queue("orders.dlq"),
        Binding("shop.dlx", "orders.dlq", "orders.dlq"),
        Queue("orders", DEAD),
        Exchange("shop", "topic", foreign=True),
        Binding("shop", "orders", "order.*"),
    )


def test_the_defaults_of_the_design() -> None:
    """R-003-2, 8 to 13, 32: durable, dead letters on, no TTL, five attempts."""
    usual = QueueOptions()
    assert usual.durable
    assert usual.ttl is None
    assert usual.retry == MaxAttempts(5)
    assert usual.dead_letter == Enabled()
    assert (Enabled().exchange("foodies"), Enabled().routing_key("orders")) == ("foodies.dlx", "orders.dlq")


def test_without_an_exchange_nothing_is_bound() -> None:
    """The default exchange knows every queue by its name; the dead-letter one is named after it."""
    assert plan("orders", QueueOptions(retry=None)) == (
        Exchange("orders.dlx"),
        Queue("orders.dlq"),
        Binding("orders.dlx", "orders.dlq", "orders.dlq"),
        Queue("orders", {**DEAD, "x-dead-letter-exchange": "orders.dlx"}),
    )


def test_a_ttl_is_an_argument_of_the_main_queue_only() -> None:
    """R-003-15, 18, 35: five minutes are 300000 milliseconds; dead letters do not expire."""
    steps = plan("orders", replace(SHOP, ttl=300.0))
    assert queue_of(steps, "orders").arguments == {**DEAD, "x-message-ttl": 300_000}
    assert queue_of(steps, "orders.dlq").arguments == {}


def test_dead_letters_disabled() -> None:
    """R-003-3, 15: no dead-letter exchange, no dead-letter queue, no arguments."""
    assert plan("orders", replace(SHOP, dead_letter=Disabled())) == (
        Queue("orders"),
        Exchange("shop", foreign=True),
        Binding("shop", "orders", "order.*"),
    )


def test_a_dead_letter_exchange_of_ones_own() -> None:
    """R-003-3, 9: custom names, by functions of the names in use."""
    own = Enabled(lambda exchange: f"dead-{exchange}", lambda queue: f"from-{queue}", foreign=True)
    steps = plan("orders", replace(SHOP, dead_letter=own))
    assert steps[:3] == (
        Exchange("dead-shop", foreign=True),
        Queue("orders.dlq"),
        Binding("dead-shop", "orders.dlq", "from-orders"),
    )
    assert queue_of(steps, "orders").arguments == {
        "x-dead-letter-exchange": "dead-shop",
        "x-dead-letter-routing-key": "from-orders",
    }


def test_a_quorum_queue_hands_dead_letters_over_safely() -> None:
    """RB8: at-least-once needs reject-publish. RB10: looks at a classic queue are harmless."""
    steps = plan("orders", replace(SHOP, queue_type=QueueType.QUORUM))
    assert queue_of(steps, "orders").arguments == {"x-queue-type": "quorum", **DEAD, **SAFE}
    assert queue_of(steps, "orders.dlq").arguments == {}
    replicated = plan("orders", replace(SHOP, dead_letter=Enabled(queue_type=QueueType.QUORUM)))
    assert queue_of(replicated, "orders.dlq").arguments == {"x-queue-type": "quorum"}
    assert queue_of(replicated, "orders").arguments == DEAD
    bare = plan("orders", QueueOptions(queue_type=QueueType.QUORUM, dead_letter=Disabled(), retry=None))
    assert bare == (Queue("orders", {"x-queue-type": "quorum"}),)


@pytest.mark.parametrize("queue_type", list(QueueType))
def test_one_retry_queue_per_delay(queue_type: QueueType) -> None:
    """D-2, RB12: one TTL per queue, back by way of the default exchange; as safe as the queue it serves."""
    tries = MaxAttempts(9, (5.0, 30.0, 300.0, 5.0))
    steps = plan("orders", QueueOptions(retry=tries, queue_type=queue_type))
    quorum = {"x-queue-type": "quorum", **SAFE} if queue_type is QueueType.QUORUM else {}
    assert [step for step in steps if ".retry." in str(step)] == [
        Queue(
            f"orders.retry.{text}",
            {
                **quorum,
                "x-message-ttl": milliseconds,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "orders",
            },
        )
        for text, milliseconds in (("5s", 5_000), ("30s", 30_000), ("5m", 300_000))
    ]


retries = st.none() | st.builds(
    MaxAttempts,
    st.integers(1, 9),
    st.lists(st.floats(0.001, 1e6), min_size=1, max_size=4).map(tuple),
)
wishes = st.builds(
    QueueOptions,
    exchange=st.sampled_from(["", "shop"]),
    ttl=st.none() | st.floats(0.001, 1e6),
    retry=retries,
    dead_letter=st.sampled_from([Enabled(), Disabled()]),
    queue_type=st.sampled_from(QueueType),
)


@given(wishes)
@example(QueueOptions())
def test_every_delay_of_the_policy_has_its_queue_in_the_plan(options: QueueOptions) -> None:
    """R-003-12, 23: what is made from the same options fits together."""
    policy = policy_of(options)
    made = [step for step in plan("orders", options) if ".retry." in str(step)]
    assert bool(made) is (policy.on_failure is OnFailure.RETRY)
    if made:
        assert {retry_queue("orders", delay, options.queue_type).name for delay in policy.retry_delays} == {
            step.name for step in made if isinstance(step, Queue)
        }


@pytest.mark.parametrize("durable", [True, False])
def test_durable_is_a_choice_about_the_main_queue(durable: bool) -> None:
    """R-003-10, 37: dead letters and what waits for a retry survive a restart all the same."""
    steps = plan("orders", replace(SHOP, retry=MaxAttempts(), durable=durable))
    queues = {step.name: step.durable for step in steps if isinstance(step, Queue)}
    assert queues.pop("orders") is durable
    assert set(queues.values()) == {True}
    assert set(queues) == {"orders.dlq", "orders.retry.5s", "orders.retry.30s", "orders.retry.5m"}


def test_a_quorum_queue_is_durable() -> None:
    """R-003-10: the broker would refuse it, with words about a property."""
    with pytest.raises(ValueError, match="durable"):
        QueueOptions(queue_type=QueueType.QUORUM, durable=False)


@given(wishes)
def test_nothing_points_at_what_is_not_there_yet(options: QueueOptions) -> None:
    """Rule 1 of the plan: a message can arrive at any moment and is never without a place to go."""
    made = {""}
    for step in plan("orders", options):
        match step:
            case Exchange(name=name):
                assert name not in made
                made.add(name)
            case Queue(name=name, arguments=arguments):
                assert name not in made
                made.add(name)
                assert arguments.get("x-dead-letter-exchange", "") in made
                if arguments.get("x-dead-letter-exchange") == "":
                    assert arguments["x-dead-letter-routing-key"] in made
                assert arguments.get("x-message-ttl", 1) >= 1
            case Binding(exchange=exchange, queue=queue):
                assert {exchange, queue} <= made


@pytest.mark.parametrize("ttl", [0.0, -1.0, 0.0004, float("inf"), float("nan")])
def test_a_time_that_no_broker_counts_is_refused(ttl: float) -> None:
    """A TTL of zero would delete what nobody waits for."""
    with pytest.raises(ValueError, match="at least"):
        QueueOptions(ttl=ttl)
    with pytest.raises(ValueError, match="at least"):
        MaxAttempts(5, (5.0, ttl))


@pytest.mark.parametrize(
    ("queue", "options"),
    [
        ("q" * 252, QueueOptions(retry=None)),
        ("ż" * 127, QueueOptions(dead_letter=Disabled())),
        ("q", QueueOptions(exchange="e" * 252)),
        ("q", QueueOptions(exchange="e", routing_key="k" * 256)),
        ("q", QueueOptions(dead_letter=Enabled(exchange=lambda _: ""))),
    ],
)
def test_a_name_that_no_broker_carries_is_refused(queue: str, options: QueueOptions) -> None:
    """AMQP has 255 bytes for a name, and the default exchange cannot be declared."""
    with pytest.raises(SettingError, match="name"):
        plan(queue, options)


@pytest.mark.parametrize("attempts", [0, -1, True, 2.0])
def test_attempts_are_counted_in_whole_numbers(attempts: int) -> None:
    """R-003-8."""
    with pytest.raises(ValueError, match="whole number"):
        MaxAttempts(attempts)


def test_tries_need_a_delay_between_them() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MaxAttempts(5, ())


def test_what_a_failed_message_gets() -> None:
    """R-003-8, 22 to 24, D-1: MaxAttempts is retry:N, None is dead-letter."""
    assert policy_of(QueueOptions()) == Policy(OnFailure.RETRY, max_attempts=5)
    tried = policy_of(QueueOptions(retry=MaxAttempts(3, (1.0, 2.0))))
    assert (tried.max_attempts, tried.retry_delays) == (3, (1.0, 2.0))
    assert policy_of(QueueOptions(retry=None)) == Policy(OnFailure.DEAD_LETTER)


TYPE = "inequivalent arg 'x-queue-type' for queue 'orders' in vhost '/': received "
TTL = "inequivalent arg 'x-message-ttl' for queue 'orders' in vhost '/': received "
LONG = "for queue '" + "l" * 180 + "..."


@pytest.mark.parametrize(
    ("step", "text", "said"),
    [
        (
            Queue("orders", {"x-message-ttl": 5}),
            TTL + "the value '5' of type 'signedint' but current is none",
            "x-message-ttl is currently none, but 5 was asked for",
        ),
        (
            Queue("orders"),
            TTL + "none but current is the value '6' of type 'signedint'",
            "x-message-ttl is currently 6, but none was asked for",
        ),
        (
            Queue("orders", {"x-message-ttl": 5}),
            TTL + "'5' but current is '6'",
            "x-message-ttl is currently 6, but 5 was asked for",
        ),
        (
            Exchange("shop.dlx"),
            "inequivalent arg 'type' for exchange 'e' in vhost '/': received 'topic' but current is 'direct'",
            "type is currently direct, but topic was asked for",
        ),
        (
            Exchange("e"),
            "inequivalent arg 'durable' for exchange 'e' in vhost '/': received 'true' "
            "but current is 'false'",
            "durable is currently false, but true was asked for",
        ),
        (
            Queue("orders", durable=False),
            "inequivalent arg 'durable' for queue 'orders' in vhost '/': received 'false' "
            "but current is 'true'",
            "durable is currently true, but false was asked for",
        ),
        (
            retry_queue("orders", 5.0),
            f"inequivalent arg 'x-message-ttl' {LONG}",
            "x-message-ttl is currently something else, but 5000 was asked for",
        ),
        (  # RabbitMQ 3
            Queue("orders"),
            TYPE + "none but current is the value 'quorum' of type 'longstr'",
            "x-queue-type is currently quorum, but classic was asked for",
        ),
        (  # RabbitMQ 4 adds the type itself
            Queue("orders"),
            TYPE + "'classic' but current is 'quorum'",
            "x-queue-type is currently quorum, but classic was asked for",
        ),
        (  # the same where quorum is the default of the virtual host
            Queue("orders"),
            TYPE + "'quorum' but current is 'classic'",
            "x-queue-type is currently classic, but quorum was asked for",
        ),
        (Queue("orders"), "something new", "something new"),
    ],
)
def test_what_differs_is_said(step: Exchange | Queue, text: str, said: str) -> None:
    """R-003-38: the argument, what is there, what was wanted; also when the broker cut its text short."""
    assert difference(step, f"PRECONDITION_FAILED - {text}" if said != text else text) == said
