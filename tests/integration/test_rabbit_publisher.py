"""The confirmed publisher against a real broker (RB6, RB7)."""

from __future__ import annotations

from decimal import Decimal
from time import monotonic

import pytest

from chronicle.errors import BrokerRefused, BrokerUnreachable, ConnectionLost, InvalidMessage
from chronicle.transports.catalog import open_publisher
from chronicle.transports.rabbitmq.publisher import RabbitPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.fixtures import Broker
from support.proxy import Mode, Proxy
from support.waiting import wait_for

MESSAGES = [Outgoing(b"%d" % number) for number in range(100)]


@pytest.fixture
def queue(rabbit: Broker) -> str:
    return rabbit.queues.declare(rabbit.queues.name())


def test_a_batch_is_on_the_queue_when_publish_returns(rabbit: Broker, queue: str) -> None:
    """RB7: in order, all of it, also when it spans many frames."""
    with open_publisher(Connector(rabbit.url, queue)) as publisher:
        publisher.publish(MESSAGES)
        publisher.publish([])
        publisher.publish([Outgoing(b"x" * 1_000_000), Outgoing(b"")])
    bodies = [fetched.body for fetched in rabbit.queues.get_all(queue)]
    assert bodies == [message.body for message in MESSAGES] + [b"x" * 1_000_000, b""]


def test_a_returned_message_is_not_a_confirmed_one(rabbit: Broker, queue: str) -> None:
    """RB7: an unroutable publish is confirmed by the broker all the same."""
    with RabbitPublisher(Connector(rabbit.url, queue)) as publisher:
        publisher.publish(MESSAGES)
        rabbit.queues.delete(queue)
        with pytest.raises(BrokerRefused, match="is gone"):
            publisher.publish(MESSAGES)
        assert publisher.confirmed == len(MESSAGES)


def test_a_refusal_counts_for_its_own_batch_only(rabbit: Broker) -> None:
    """What a later batch put on the queue must not be reported as refused: it would be sent once more."""
    full = rabbit.queues.declare(rabbit.queues.name(), {"x-max-length": 1, "x-overflow": "reject-publish"})
    with RabbitPublisher(Connector(rabbit.url, full)) as publisher:
        with pytest.raises(BrokerRefused, match="full"):
            publisher.publish(MESSAGES)
        rabbit.queues.get_all(full)
        publisher.publish(MESSAGES[:1])
    assert rabbit.queues.depth(full) == 1


def test_a_connection_lost_between_batches_is_opened_again(rabbit: Broker, queue: str) -> None:
    """Nothing was in flight, so nothing is in doubt."""
    with (
        Proxy(rabbit.url) as proxy,
        RabbitPublisher(Connector(proxy.url_for(rabbit.url), queue)) as publisher,
    ):
        publisher.publish(MESSAGES)
        proxy.cut()
        publisher.publish(MESSAGES)
        assert publisher.confirmed == 2 * len(MESSAGES)
    assert rabbit.queues.depth(queue) == 2 * len(MESSAGES)


def test_the_time_to_start_counts_for_the_start_only(rabbit: Broker, queue: str) -> None:
    """A connection lost between batches is opened again, also when that time is long over."""
    over: list[bool] = []
    with Proxy(rabbit.url) as proxy:
        connector = Connector(proxy.url_for(rabbit.url), queue)
        with RabbitPublisher(connector, lambda: bool(over)) as publisher:
            over.append(True)
            proxy.cut()
            publisher.publish(MESSAGES)
    assert rabbit.queues.depth(queue) == len(MESSAGES)


def test_confirmations_that_do_not_come_end_in_an_error(rabbit: Broker, queue: str) -> None:
    """Never a silent hang: the broker's missed heartbeats end the wait, and nothing counts as confirmed."""
    with Proxy(rabbit.url) as proxy:
        url = proxy.url_for(rabbit.url)
        with RabbitPublisher(Connector(url, queue, extras={"heartbeat": "1"})) as publisher:
            proxy.set(Mode.BLACK_HOLE)
            with pytest.raises(ConnectionLost):
                publisher.publish(MESSAGES)
            assert publisher.confirmed == 0


def test_others_are_served_while_it_waits_for_confirmations(rabbit: Broker, queue: str) -> None:
    """RB5: whoever moves messages has another connection, whose heartbeats must go on."""
    served: list[float] = []
    with (
        Proxy(rabbit.url) as proxy,
        RabbitPublisher(Connector(proxy.url_for(rabbit.url), queue)) as publisher,
    ):

        def meanwhile() -> None:
            served.append(monotonic())
            if served[-1] - served[0] > 2.0:
                proxy.set(Mode.PASS)

        proxy.set(Mode.BLACK_HOLE)
        publisher.publish(MESSAGES, meanwhile)
        assert publisher.confirmed == len(MESSAGES)
    assert len(served) >= 4


def test_connecting_can_be_called_off(rabbit: Broker, queue: str) -> None:
    """R-004-2: a silent peer keeps nobody who wants to stop."""
    with Proxy(rabbit.url) as proxy:
        proxy.set(Mode.BLACK_HOLE)
        asked = iter([False, False, True])
        publisher = RabbitPublisher(Connector(proxy.url_for(rabbit.url), queue), lambda: next(asked))
        with pytest.raises(BrokerUnreachable), publisher:
            pass
        wait_for(lambda: proxy.connections == 0, 30, "the connection to end")


def test_a_port_that_never_answers_is_given_up(rabbit: Broker, queue: str) -> None:
    with Proxy(rabbit.url) as proxy:
        proxy.set(Mode.BLACK_HOLE)
        connector = Connector(proxy.url_for(rabbit.url), queue, extras={"connection_timeout": "500"})
        with pytest.raises(BrokerUnreachable), RabbitPublisher(connector):
            pass


def test_a_header_that_amqp_cannot_carry_sends_nothing(rabbit: Broker, queue: str) -> None:
    """Half a batch would be worse: the rest could not be told from it."""
    bad = Outgoing(b"x", {"header": object()})
    with RabbitPublisher(Connector(rabbit.url, queue)) as publisher:
        with pytest.raises(InvalidMessage):
            publisher.publish([*MESSAGES, bad])
        publisher.publish([Outgoing(b"y", {"decimal": Decimal("1.5"), "list": [1, None, {"a": b"b"}]})])
        assert publisher.confirmed == 1
    assert rabbit.queues.depth(queue) == 1
