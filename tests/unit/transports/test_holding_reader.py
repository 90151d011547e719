"""A reader that holds and gives back: the queue's order, its bounds, and several holders at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.settlement import Settlement
from chronicle.errors import BrokerUnreachable, ConnectionLost
from chronicle.transports import holding_reader
from chronicle.transports.holding_reader import HoldingReader
from chronicle.transports.seam import Closing, Connector, Reading
from support.scripted import Message, ScriptedTransport

CONNECTOR = Connector("local:q.db", "q")


class Broker:
    """One queue with as many consumers as are opened; each takes no more than its prefetch."""

    def __init__(self, count: int) -> None:
        self.queue = deque(Message(number, b"%d" % number) for number in range(count))
        self.consumers: list[ScriptedTransport] = []
        self.refuses: list[BrokerUnreachable] = []  # one for each consumer to come

    def consumer(self, connector: Connector) -> ScriptedTransport:
        made = Windowed(connector.prefetch)
        made.queue = self.queue
        made.refusals.extend(self.refuses[:1])
        if connector is not CONNECTOR:
            self.consumers.append(made)
        return made

    def reader(self, ahead: int | None = None) -> HoldingReader:
        return HoldingReader(self.consumer, CONNECTOR, Reading(ahead))

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.queue]


class Windowed(ScriptedTransport):
    """A consumer that is handed no more than its window."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window

    def _take(self, room: int) -> list[Delivery]:
        return super()._take(min(room, self._window - len(self.held)))


def opened(broker: Broker, ahead: int | None = None) -> HoldingReader:
    reader = broker.reader(ahead)
    reader.open(lambda: False)
    return reader


def read_all(reader: HoldingReader) -> list[Delivery]:
    found: list[Delivery] = []
    while (batch := reader.read(100, 0.0)) is not None:
        found += batch
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_was_there_is_read_in_order_and_given_back_by_several_holders() -> None:
    """A window of 3, then one eight times as wide; nothing is settled."""
    broker = Broker(20)
    reader = opened(broker, 3)
    assert reader.present == 20
    assert [one.body for one in read_all(reader)] == numbers(20)
    assert len(broker.consumers) == 2
    reader.close()
    assert sorted(broker.bodies) == sorted(numbers(20))
    assert not any(consumer.carried for consumer in broker.consumers)


def test_no_window_is_wider_than_amqp_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert holding_reader.WIDEST == 65535
    monkeypatch.setattr(holding_reader, "WIDEST", 5)
    broker = Broker(12)
    assert len(read_all(opened(broker))) == 12
    assert len(broker.consumers) == 3


def test_what_comes_meanwhile_is_not_read() -> None:
    broker = Broker(2)
    reader = opened(broker)
    assert len(reader.read(1, 0.0) or ()) == 1
    broker.consumers[0].publish(b"new", b"newer")
    assert [one.body for one in read_all(reader)] == [b"1"]
    assert broker.bodies == [b"new", b"newer"]


def test_only_what_was_removed_is_gone_whichever_holder_has_it() -> None:
    """Two holders count their tags alike; a removal must reach the right one."""
    broker = Broker(6)
    reader = opened(broker, 2)
    found = read_all(reader)
    reader.remove([found[0], found[5]])
    reader.close()
    assert sorted(broker.bodies) == [b"1", b"2", b"3", b"4"]


def test_a_removal_that_is_in_doubt_is_a_lost_connection() -> None:
    broker = Broker(2)
    reader = opened(broker)
    found = read_all(reader)
    reader.remove(found[:1])
    with pytest.raises(ConnectionLost):
        reader.remove(found[:1])  # it is gone already
    reader.close(Closing.LOST)
    with pytest.raises(ConnectionLost):
        reader.remove(found[1:])  # the broker has it back
    assert broker.bodies == [b"1"]


def test_a_removal_is_certain_only_when_the_broker_has_answered_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that answers no acknowledgement may be gone before it gets one."""
    broker = Broker(2)
    reader = opened(broker)
    found = read_all(reader)
    consumer = broker.consumers[0]
    settle = consumer.settle

    def written_to_a_dead_connection(work: Sequence[Settlement]) -> Sequence[Settlement]:
        settled = settle(work)
        consumer.lose()
        return settled

    monkeypatch.setattr(consumer, "settle", written_to_a_dead_connection)
    with pytest.raises(ConnectionLost):
        reader.remove(found)


def test_it_may_be_opened_again_and_then_reads_what_is_there() -> None:
    broker = Broker(3)
    reader = opened(broker)
    reader.remove(reader.read(1, 0.0) or ())
    reader.close(Closing.LOST)
    reader.open(lambda: False)
    assert (reader.present, [one.body for one in read_all(reader)]) == (2, [b"1", b"2"])


def test_what_others_hold_is_not_waited_for_for_ever() -> None:
    """The broker told of three and hands out one: over when it says that nothing waits."""
    broker = Broker(3)
    reader = opened(broker)
    broker.queue.pop()
    broker.queue.pop()
    assert len(read_all(reader)) == 1


def test_a_broker_that_only_claims_to_have_more_is_left_after_a_while() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    broker = Broker(1)
    reader = HoldingReader(broker.consumer, CONNECTOR, Reading(), clock=clock)
    reader.open(lambda: False)
    broker.queue.clear()
    broker.consumers[0].empties.extend([False] * 100)
    assert read_all(reader) == []
    assert len(broker.consumers[0].empties) > 90


def test_a_stop_while_opening_leaves_nothing_to_read() -> None:
    broker = Broker(2)
    reader = broker.reader()
    reader.open(lambda: True)
    reader.serve()
    assert (reader.present, reader.read(1, 0.0)) == (0, None)
    reader.close()


def test_a_further_holder_that_cannot_connect_is_a_lost_connection() -> None:
    """Who reads expects that; no connection could be made is for the beginning."""
    broker = Broker(3)
    reader = opened(broker, 1)
    reader.read(1, 0.0)
    broker.refuses = [BrokerUnreachable("away")]
    with pytest.raises(ConnectionLost, match="away"):
        reader.read(1, 0.0)
    reader.close(Closing.LOST)
    assert sorted(broker.bodies) == numbers(3)


def test_serving_takes_nothing_in() -> None:
    broker = Broker(3)
    reader = opened(broker, 1)
    reader.read(1, 0.0)
    reader.serve()
    assert len(broker.queue) == 2
    broker.consumers[0].lose()
    with pytest.raises(ConnectionLost):
        reader.serve()
