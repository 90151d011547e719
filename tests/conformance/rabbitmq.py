"""RabbitMQ as the conformance suite sees it: real queues, by way of a proxy that can cut a transport off."""

from __future__ import annotations

from collections.abc import Sequence

from chronicle.core.queues import dead_letter_queue
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.rabbitmq.publisher import RabbitPublisher
from chronicle.transports.seam import Connector, Outgoing, Transport
from support.proxy import Proxy
from support.queues import Queues


class RabbitBroker:
    """Classic or quorum queues of one broker.

    Dead letters of the classic ones are moved by chronicle, those of the others left to the broker (D-22).
    """

    live = True
    shares = True
    misses_queues = True
    reconnects = False

    def __init__(self, queues: Queues, proxy: Proxy, *, quorum: bool) -> None:
        self._queues = queues
        self._proxy = proxy
        self._quorum = quorum
        self._dead: dict[str, list[bytes]] = {}

    def new_queue(self, *, ordered: bool = False) -> str:
        queue = self._queues.name("conformance")
        if self._quorum:
            self._queues.declare_with_dead_letters(queue, quorum=True)
        else:
            self._queues.declare(queue)
            self._queues.declare(dead_letter_queue(queue))
        self._dead[queue] = []
        return queue

    def make_transport(self, queue: str, prefetch: int = 10) -> Transport:
        return RabbitTransport(Connector(self._proxy.url_for(self._queues.url), queue, prefetch))

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        with RabbitPublisher(Connector(self._queues.url, queue)) as publisher:
            publisher.publish([Outgoing(body) for body in bodies])

    def dead_letters(self, queue: str) -> list[bytes]:
        keeper = f"{queue}.dead" if self._quorum else dead_letter_queue(queue)
        # Taken off the queue and remembered: the broker moves them there in its own time.
        self._dead[queue] += [letter.body for letter in self._queues.get_all(keeper)]
        return self._dead[queue]

    def lose_connection(self, transport: Transport) -> None:
        self._proxy.cut()
