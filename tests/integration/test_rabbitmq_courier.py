"""The courier against a real broker: odd envelopes, forged deaths, verdicts that wait for a confirmation."""

from __future__ import annotations

import gc
import logging
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

import pika
import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.notice import Notice
from chronicle.core.outcome import Action, Failed, Verdict
from chronicle.core.policy import OnFailure, Policy
from chronicle.core.queues import retry_queue_name
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import ConnectionLost, SettingError
from chronicle.transports.rabbitmq.codec.decode import fields_of, properties_of
from chronicle.transports.rabbitmq.codec.encode import encode
from chronicle.transports.rabbitmq.connection import Encoded
from chronicle.transports.rabbitmq.consumer import RabbitTransport
from chronicle.transports.rabbitmq.options import DEAD_LETTERS, Way
from chronicle.transports.seam import Closing, Connector, refuse_what_it_cannot
from support.fixtures import Broker
from support.proxy import Mode, Proxy
from support.queues import Queues
from support.retrying import prepare
from support.waiting import wait_for

DELAY: Final = 0.1
PATIENCE: Final = 30.0
DEATH: Final = {"reason": "expired", "count": 1, "exchange": "", "routing-keys": ["q"]}


class Line:
    """One queue with a retry queue, and a transport on it that the test turns by hand."""

    def __init__(
        self, queues: Queues, *, quorum: bool, url: str = "", delay: float = DELAY, way: Way = Way.AUTO
    ) -> None:
        self.queues = queues
        self.queue = queues.declare(queues.name("courier"), quorum=quorum)
        self.dead = prepare(queues, self.queue, (delay,), quorum=quorum)
        self.waiting = retry_queue_name(self.queue, delay)
        self.delay = delay
        connector = Connector(
            url or queues.url, self.queue, 10, retry_delays=(delay,), choices={DEAD_LETTERS: way}
        )
        self.transport = RabbitTransport(connector)
        self.open()

    def open(self) -> None:
        self.transport.open(lambda: False)
        self.transport.notices.clear()  # who keeps the dead letters

    def publish(self, body: bytes, envelope: bytes) -> None:
        """As a producer with a client of its own would: pika could not encode all of this."""
        with self.queues.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", self.queue, body, Encoded(envelope), mandatory=True)

    def receive(self) -> Delivery:
        def one() -> list[Delivery]:
            return list(self.transport.receive(1, 0.1))

        return wait_for(one, PATIENCE, "a delivery", every=0)[0]

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        """Settle these, and turn until as many are final."""
        final = list(self.transport.settle(settlements))
        return [*final, *self.settle_nothing(len(settlements) - len(final))]

    def settle_nothing(self, wanted: int) -> list[Settlement]:
        """Turn until so many more are final."""
        final: list[Settlement] = []

        def all_final() -> bool:
            self.transport.receive(0, 0.1)
            final.extend(self.transport.settle(()))
            return len(final) >= wanted

        wait_for(all_final, PATIENCE, "final verdicts", every=0)
        return final

    def refusal(self) -> Notice:
        """Turn until a copy was refused; nothing is final before."""

        def refused() -> bool:
            self.transport.receive(0, 0.1)
            assert list(self.transport.settle(())) == []
            return bool(self.transport.notices)

        wait_for(refused, PATIENCE, "the refusal", every=0)
        return self.transport.notices.popleft()

    def retry(self, delivery: Delivery) -> Settlement:
        return Settlement(delivery, Failed(), Verdict(Action.RETRY, "why", self.delay))

    def bury(self, delivery: Delivery) -> Settlement:
        return Settlement(delivery, Failed(), Verdict(Action.DEAD_LETTER, "why"))

    def buried(self) -> Delivery:
        """The one dead letter, read by a transport: pika could not decode all of this."""
        transport = RabbitTransport(Connector(self.queues.url, self.dead, 10))
        transport.open(lambda: False)
        try:
            return wait_for(lambda: list(transport.receive(1, 0.1)), PATIENCE, "a dead letter", every=0)[0]
        finally:
            transport.close()


@pytest.fixture(params=[False, True], ids=["classic", "quorum"])
def line(rabbit: Broker, request: pytest.FixtureRequest) -> Iterator[Line]:
    made = Line(rabbit.queues, quorum=request.param)
    yield made
    made.transport.close()


def fields(envelope: bytes) -> dict[bytes, bytes]:
    return dict(fields_of(properties_of(envelope)["headers"][4:]))


def table(depth: int) -> bytes:
    """A header whose value is so many tables inside each other."""
    content = b""
    for _ in range(depth):
        content = b"\x01kF" + struct.pack(">I", len(content)) + content
    return content


ODD: Final[dict[str, bytes]] = {
    "a float of eight bytes": b"\x01h" + b"d" + struct.pack(">d", 0.7),
    "a float of four bytes": b"\x01h" + b"f" + struct.pack(">f", 0.1),
    "a time in milliseconds": b"\x01h" + b"T" + struct.pack(">Q", 1_700_000_000_000),
    "a number of eight bytes": b"\x01h" + b"l" + b"\x7f" + b"\xff" * 7,
    "a name that is not UTF-8": b"\x02\xff\xfe" + b"b\x80",
    "text that is not UTF-8": b"\x01h" + b"S\x00\x00\x00\x02\xff\xfe",
    "nothing in a list": b"\x01h" + b"A\x00\x00\x00\x02VV",
    "tables nobody reads": table(100),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_RB13_an_odd_header_is_counted_and_comes_through_unchanged(line: Line, odd: bytes) -> None:
    """Z6: by way of a retry queue and into the dead letters, also when nobody can read it."""
    line.publish(b"body", struct.pack(">HI", 1 << 13, len(odd)) + odd)
    first = line.receive()
    assert first.attempts == 1
    assert [final.fate for final in line.settle(line.retry(first))] == [Fate.DONE]
    second = line.receive()
    assert second.attempts == 2
    assert [final.fate for final in line.settle(line.bury(second))] == [Fate.DONE]
    letter = line.buried()
    assert letter.body == b"body"
    assert letter.headers["x-chronicle-attempts"] == 2
    ((name, field),) = fields_of(odd)
    assert fields(letter.handle[2])[name] == field


@pytest.mark.parametrize(
    "deaths",
    [
        [{"queue": "QUEUE", **DEATH}],
        [{"queue": "elsewhere", **DEATH}, {"queue": "QUEUE", **DEATH}],
        [{"queue": "QUEUE", **DEATH, "reason": "maxlen"}],
        [{"queue": "QUEUE", **DEATH, "reason": "rejected"}],
        [],
        "str",
        [1],
        [{"count": "9"}],
        {"queue": "QUEUE", **DEATH},
        [{"queue": "QUEUE", **DEATH, "count": -1}],
    ],
    ids=repr,
)
def test_RB12_no_x_death_makes_the_broker_delete_a_retried_message(line: Line, deaths: Any) -> None:
    """A message that came back by expiry alone is deleted by the broker: an old or forged death must not tell
    it so (Z16)."""
    named = with_names(deaths, line.queue)
    line.publish(b"body", encode({"x-death": named}, {}))
    first = line.receive()
    line.settle(line.retry(first))
    again = line.receive()
    assert again.body == b"body"
    assert again.attempts == first.attempts + 1


def with_names(value: Any, queue: str) -> Any:
    """The same with the queue's name in it."""
    if isinstance(value, list):
        return [with_names(item, queue) for item in value]
    if isinstance(value, dict):
        return {name: with_names(item, queue) for name, item in value.items()}
    return queue if value == "QUEUE" else value


def test_what_would_mislead_the_broker_stays_behind(line: Line) -> None:
    """A time to live, somebody else's name, and orders to copy the message elsewhere."""
    elsewhere = line.queues.declare(line.queues.name("elsewhere"))
    line.publish(b"body", encode({"kept": 1}, {"expiration": "60000"}))
    first = line.receive()
    # The broker takes the name of another user and copying orders from no test, so they are put in here.
    raw = encode({"kept": 1, "CC": [elsewhere], "x-delivery-count": 5}, {"expiration": "1", "user_id": "eve"})
    first.handle = (*first.handle[:2], raw, *first.handle[3:])
    line.settle(line.bury(first))
    letter = line.buried()
    assert letter.properties == {"delivery_mode": 2}
    assert letter.headers["kept"] == 1
    assert "CC" not in letter.headers
    assert line.queues.depth(elsewhere) == 0
    time.sleep(0.01)  # longer than its time to live was
    assert line.queues.depth(line.dead) == 1


@pytest.mark.parametrize("way", Way)
def test_headers_that_fill_a_frame_are_not_lost(rabbit: Broker, way: Way) -> None:
    """No client can send them on. Where only we keep dead letters, the broker might delete them (D-22)."""
    line = Line(rabbit.queues, quorum=False, way=way)
    try:
        line.publish(b"body", encode({"small": 1}, {}))
        first = line.receive()
        first.handle = (*first.handle[:2], encode({"large": "x" * 131_072}, {}), *first.handle[3:])
        (final,) = line.settle(line.retry(first))
        assert (final.fate, final.verdict.action) == (
            (Fate.REJECTED, Action.DEAD_LETTER) if way is Way.BROKER else (Fate.ASIDE, Action.RETRY)
        )
        assert "headers cannot be passed on" in final.verdict.reason
        assert line.queues.depth(line.waiting) == 0
    finally:
        line.transport.close()


def test_RB11_headers_that_nobody_can_move_are_put_aside(line: Line) -> None:
    """They fill a frame, and their forged x-death would make the broker lose them; they come back later."""
    line.publish(b"body", encode({"x-death": [9]}, {}))
    first = line.receive()
    assert first.headers == {"x-death": [9]}
    full = encode({"x-death": [9], "large": "x" * 131_072}, {})
    first.handle = (*first.handle[:2], full, *first.handle[3:])
    (final,) = line.settle(line.retry(first))
    assert final.fate is Fate.ASIDE
    assert "so it is put aside and stays in its queue" in final.verdict.reason
    assert list(line.transport.receive(1, 0.3)) == []
    line.transport.close(Closing.LOST)
    line.open()
    assert line.receive().redelivered


def test_a_verdict_given_twice_is_carried_out_once(line: Line) -> None:
    """On one connection nothing is published twice, before the confirmation and after it."""
    line.publish(b"body", encode({}, {}))
    first = line.receive()
    twice = line.settle(line.retry(first), line.retry(first))
    assert sorted(final.fate for final in twice) == [Fate.DONE, Fate.STALE]
    assert [final.fate for final in line.settle(line.retry(first))] == [Fate.STALE]
    assert line.receive().attempts == 2
    assert list(line.transport.receive(1, 3 * DELAY)) == []


def test_a_verdict_from_another_epoch_is_stale(line: Line) -> None:
    """RB2: what was received before a reconnect is somebody else's now."""
    line.publish(b"body", encode({}, {}))
    before = line.receive()
    line.transport.close(Closing.LOST)
    line.open()
    assert [final.fate for final in line.settle(line.retry(before))] == [Fate.STALE]
    assert line.receive().redelivered
    assert line.queues.depth(line.waiting) == 0


@pytest.mark.parametrize("why", list(Closing))
def test_a_closed_transport_keeps_no_connection(rabbit: Broker, why: Closing) -> None:
    """RB2: without waiting for the broker, or for the garbage collector: what was held is free at once."""
    gc.disable()
    try:
        with Proxy(rabbit.url) as proxy:
            line = Line(rabbit.queues, quorum=False, url=proxy.url_for(rabbit.url))
            assert proxy.connections == 2
            line.transport.close(why)
            wait_for(lambda: proxy.connections == 0, PATIENCE / 6, "both connections to end")
    finally:
        gc.enable()


def test_RB7_nothing_is_final_without_a_confirmation(rabbit: Broker) -> None:
    """Confirmations are kept back: the copy is in its queue, the source unacknowledged, nothing is final."""
    with Proxy(rabbit.url) as proxy:
        line = Line(rabbit.queues, quorum=False, url=proxy.url_for(rabbit.url), delay=60.0)
        try:
            line.publish(b"body", encode({}, {}))
            delivery = line.receive()
            proxy.set(Mode.DROP_REPLIES)
            assert list(line.transport.settle([line.retry(delivery)])) == []
            wait_for(
                lambda: (line.transport.receive(0, 0.05), rabbit.queues.depth(line.waiting) == 1)[1],
                PATIENCE,
                "the copy",
            )
            assert list(line.transport.settle(())) == []
            proxy.cut()
            with pytest.raises(ConnectionLost):
                wait_for(lambda: line.transport.receive(0, 0.1), PATIENCE, "the loss", every=0)
        finally:
            line.transport.close()
        wait_for(lambda: rabbit.queues.depth(line.queue) == 1, PATIENCE, "the source to come back")
        assert rabbit.queues.depth(line.waiting) == 1


def test_RB7_a_message_that_comes_back_waits_for_its_queue(line: Line) -> None:
    """The broker confirms it all the same; its source is not acknowledged before a copy has arrived."""
    line.publish(b"body", encode({}, {}))
    line.queues.delete(line.waiting)
    assert list(line.transport.settle([line.retry(line.receive())])) == []
    notice = line.refusal()
    assert (notice.event, notice.level) == ("message.copy_refused", logging.ERROR)
    assert "is gone: a message was returned" in notice.text
    line.queues.declare(line.waiting, {"x-message-ttl": 100, **back_to(line.queue)})
    (final,) = line.settle_nothing(1)
    assert final.fate is Fate.DONE
    assert line.receive().attempts == 2


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_RB13_an_odd_header_that_comes_back_waits_for_its_queue_too(line: Line, odd: bytes) -> None:
    """RB7: nobody reads the headers of what comes back, so none of them ends the connection."""
    line.publish(b"body", struct.pack(">HI", 1 << 13, len(odd)) + odd)
    line.queues.delete(line.dead)
    assert list(line.transport.settle([line.bury(line.receive())])) == []
    notice = line.refusal()
    assert (notice.event, notice.facts["target"]) == ("message.copy_refused", line.dead)
    line.queues.declare(line.dead)
    (final,) = line.settle_nothing(1)
    assert final.fate is Fate.DONE
    ((name, field),) = fields_of(odd)
    assert fields(line.buried().handle[2])[name] == field


def back_to(queue: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def test_RB7_a_message_the_broker_refuses_is_not_acknowledged(rabbit: Broker) -> None:
    """A full retry queue that rejects: the message stays where it is, and the connection lives."""
    queues = rabbit.queues
    queue = queues.declare(queues.name("full"))
    full = queues.declare(retry_queue_name(queue, 60.0), {"x-max-length": 1, "x-overflow": "reject-publish"})
    queues.publish(full, b"there first")
    transport = RabbitTransport(Connector(rabbit.url, queue, 10, retry_delays=(60.0,)))
    transport.open(lambda: False)
    transport.notices.clear()  # who keeps the dead letters
    try:
        queues.publish(queue, b"body")
        (delivery,) = wait_for(lambda: list(transport.receive(1, 0.1)), PATIENCE, "a delivery", every=0)
        retry = Settlement(delivery, Failed(), Verdict(Action.RETRY, "why", 60.0))
        assert list(transport.settle([retry])) == []
        wait_for(
            lambda: (transport.receive(0, 0.1), len(transport.notices) >= 2)[1], PATIENCE, "refusals", every=0
        )
        assert list(transport.settle(())) == []
        assert [notice.facts["attempt"] for notice in transport.notices] == [1, 2]
    finally:
        transport.close()
    wait_for(lambda: queues.depth(queue) == 1, PATIENCE, "the source to come back")


def test_retries_without_delays_are_refused_before_the_first_message(rabbit: Broker) -> None:
    """seam, rule 4: the policy asks for what the connector does not give."""
    transport = RabbitTransport(Connector(rabbit.url, "q"))
    with pytest.raises(SettingError, match="retry:5 cannot be honoured"):
        refuse_what_it_cannot(transport.promises, Policy(OnFailure.RETRY))


def test_a_plain_publisher_carries_what_the_broker_delivers(rabbit: Broker) -> None:
    """Floats in a captured record: pika's encoder raises on them."""
    from chronicle.transports.rabbitmq.publisher import RabbitPublisher
    from chronicle.transports.seam import Outgoing

    queue = rabbit.queues.declare(rabbit.queues.name())
    headers: dict[Any, Any] = {
        "ratio": 0.25,
        "big": 2**63 - 1,
        "none": [None, {"deep": 1.5}],
        b"\xff": b"\xfe",
    }
    with RabbitPublisher(Connector(rabbit.url, queue)) as publisher:
        publisher.publish([Outgoing(b"x", headers, {"priority": 4})])
    transport = RabbitTransport(Connector(rabbit.url, queue))
    transport.open(lambda: False)
    try:
        (delivery,) = wait_for(lambda: list(transport.receive(1, 0.1)), PATIENCE, "a delivery", every=0)
        assert delivery.headers == headers
        assert delivery.properties == {"priority": 4, "delivery_mode": pika.DeliveryMode.Persistent.value}
    finally:
        transport.close()
