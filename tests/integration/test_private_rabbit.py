"""The private node does what the fault tests rely on: it dies, returns, freezes, asks for certificates."""

from __future__ import annotations

import ssl

import pika
import pytest
from pika.adapters.utils.connection_workflow import AMQPConnectorStackTimeout
from pika.exceptions import AMQPConnectionError

from support.certs import Pair
from support.fixtures import Broker
from support.rabbit import RabbitNode


@pytest.fixture
def node(rabbit: Broker) -> RabbitNode:
    return rabbit.node


def test_a_killed_node_comes_back_with_its_data(node: RabbitNode) -> None:
    classic = node.queues.declare(node.queues.name("classic"))
    quorum = node.queues.declare(node.queues.name("quorum"), quorum=True)
    for queue in (classic, quorum):
        node.queues.publish(queue, b"kept", headers={"n": 1})
    node.kill()
    assert not node.running
    node.start()
    for queue in (classic, quorum):
        assert node.queues.depth(queue) == 1
        assert [(got.body, got.headers["n"]) for got in node.queues.get_all(queue)] == [(b"kept", 1)]


def test_a_frozen_node_answers_nobody_until_it_is_thawed(node: RabbitNode) -> None:
    queue = node.queues.declare(node.queues.name())
    impatient = pika.URLParameters(node.url)
    impatient.socket_timeout = impatient.stack_timeout = 1
    node.freeze()
    try:
        with pytest.raises(AMQPConnectorStackTimeout):
            pika.BlockingConnection(impatient)
    finally:
        node.thaw()
    assert node.queues.depth(queue) == 0


def test_the_tls_listener_asks_for_a_certificate_of_our_authority(node: RabbitNode) -> None:
    assert node.certs is not None
    _connect_tls(node, node.certs.client)
    for refused in (None, node.certs.stranger):
        with pytest.raises(AMQPConnectionError):
            _connect_tls(node, refused)


def test_what_a_consumer_holds_counts_as_unacknowledged(rabbit: Broker) -> None:
    queue = rabbit.queues.declare(rabbit.queues.name())
    rabbit.queues.publish(queue, b"one", b"two")
    with rabbit.queues.channel() as channel:
        channel.basic_get(queue)
        assert rabbit.node.counts(queue) == (1, 1)
    assert rabbit.node.counts(queue) == (2, 0)


def _connect_tls(node: RabbitNode, who: Pair | None) -> None:
    assert node.certs is not None
    context = ssl.create_default_context(cafile=str(node.certs.ca))
    if who is not None:
        context.load_cert_chain(who.cert, who.key)
    parameters = pika.URLParameters(node.tls_url)
    parameters.ssl_options = pika.SSLOptions(context, "localhost")
    pika.BlockingConnection(parameters).close()
