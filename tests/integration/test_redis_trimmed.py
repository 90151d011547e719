"""An entry that is trimmed from its Redis stream while it is in work is still handled to its end (S8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.transports.seam import Closing
from support.redis_server import RedisServer
from support.stream_hands import Hands, hands, is_over

FIELDS = {"kind": b"\xff\x00"}


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    yield redis_server.streams.make(redis_server.streams.name("trimmed"))
    redis_server.streams.clear()


@pytest.fixture
def consumer(redis_server: RedisServer, stream: str) -> Iterator[Hands]:
    with hands(redis_server, stream) as consumer:
        yield consumer


@pytest.fixture
def trimmed(redis_server: RedisServer, stream: str, consumer: Hands) -> Delivery:
    """A delivery in work, whose entry a producer with MAXLEN has trimmed."""
    redis_server.streams.publish(stream, b"precious", fields=FIELDS)
    (delivery,) = consumer.get(1)
    trim(redis_server, stream)
    return delivery


def trim(server: RedisServer, stream: str) -> None:
    with server.client() as client:
        client.xtrim(stream, maxlen=0, approximate=False)


def assert_one_dead_letter(server: RedisServer, stream: str, attempts: bytes) -> None:
    (letter,) = server.streams.entries(f"{stream}.dlq")
    assert letter.fields["data"] == b"precious"
    assert letter.fields["kind"] == FIELDS["kind"]
    assert letter.fields["x-chronicle-attempts"] == attempts
    assert server.streams.pending(stream) == []


def test_its_dead_letter_is_written_though_it_was_touched(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery
) -> None:
    """S8, S4: saying that it is in work must not make Redis forget it, nor end its lease."""
    consumer.hear("redis.trimmed_in_work")
    consumer.turn_for(0.6)  # and once more
    assert not is_over(trimmed)
    assert consumer.settle(trimmed, Action.DEAD_LETTER) is Fate.DONE
    assert_one_dead_letter(redis_server, stream, b"1")
    assert consumer.said == ["redis.trimmed_in_work"]
    assert consumer.reaches_the_end()


def test_its_second_failure_is_a_dead_letter(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery
) -> None:
    """S8, D-1: requeue-once gives it another try from memory, and the second failure is the last."""
    assert consumer.settle(trimmed, Action.REQUEUE) is Fate.DONE
    (again,) = consumer.get(1)
    assert (again.body, again.redelivered, again.attempts) == (b"precious", True, 2)
    consumer.turn_for(0.6)  # in work for long enough to be touched
    assert not is_over(again)
    assert consumer.settle(again, Action.DEAD_LETTER) is Fate.DONE
    assert_one_dead_letter(redis_server, stream, b"2")


def test_a_reconnect_does_not_settle_it(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery
) -> None:
    """S8, S3: the own pending list is read again, and what is in work here is not counted as lost."""
    consumer.reconnect()
    consumer.turn_for(0.5, room=1)
    assert consumer.settle(trimmed, Action.DEAD_LETTER) is Fate.DONE
    assert_one_dead_letter(redis_server, stream, b"1")
    assert "redis.lost_trimmed" not in consumer.said


def test_its_delayed_retry_comes_back(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery
) -> None:
    """S8, D-2: it waits beside the stream like any other."""
    consumer.hear("redis.trimmed_in_work")
    assert consumer.settle(trimmed, Action.REQUEUE, delay=0.2) is Fate.DONE
    assert redis_server.streams.pending(stream) == []
    (again,) = consumer.get(1)
    assert (again.body, again.attempts) == (b"precious", 2)


def test_its_success_leaves_nothing_behind(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery
) -> None:
    """S8: and nobody is told that an acknowledgement failed."""
    consumer.hear("redis.trimmed_in_work")
    assert consumer.settle(trimmed, Action.ACK) is Fate.DONE
    assert consumer.reaches_the_end()
    assert redis_server.streams.pending(stream) == []
    assert consumer.said == ["redis.trimmed_in_work"]


@pytest.mark.parametrize("touched", [False, True])
def test_a_drain_at_its_deadline_puts_it_on_the_stream_again(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery, touched: bool
) -> None:
    """S8, D-11: its contents exist only here, so the group gets them back, without a try burnt."""
    if touched:
        consumer.hear("redis.trimmed_in_work")
    consumer.transport.stop(1.0)
    consumer.leave(Closing.DEADLINE)
    assert redis_server.streams.bodies(stream) == [b"precious"]
    assert redis_server.streams.pending(stream) == []
    with hands(redis_server, stream, tag="next") as after:
        (again,) = after.get(1)
        assert (again.body, again.attempts) == (b"precious", 1)
        assert again.headers["kind"] == FIELDS["kind"]
    with hands(redis_server, stream, tag="other", group="other") as other:
        assert other.turn_for(0.5, room=1) == []  # it is put back for the group that had it
