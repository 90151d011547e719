"""An entry that is trimmed from its Redis stream while it is in work is still handled to its end (S8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import ConnectionLost
from chronicle.transports.seam import Closing
from support.proxy import Proxy
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


@pytest.mark.parametrize("delay", [0.0, 3600.0], ids=["dead-letter", "delayed-retry"])
@pytest.mark.parametrize("touched", [False, True])
def test_a_verdict_that_never_arrived_is_carried_out_though_the_group_forgot_it(
    redis_server: RedisServer, stream: str, consumer: Hands, trimmed: Delivery, touched: bool, delay: float
) -> None:
    """S6, S8: nothing is pending and nothing is in the stream, so only this process has the message."""
    if touched:
        consumer.hear("redis.trimmed_in_work")
    with redis_server.client() as client:  # another consumer's search for what the dead have left
        client.xautoclaim(stream, "chronicle", "other", 0, "0-0")
    assert redis_server.streams.pending(stream) == []
    lost = consumer.give(trimmed, Action.REQUEUE if delay else Action.DEAD_LETTER, delay=delay)
    consumer.reconnect()
    consumer.transport.settle((lost,))  # as the engine does
    consumer.turn_until(lambda: lost.fate is not Fate.OPEN, "an answer")
    kept = redis_server.streams.delayed(stream) if delay else redis_server.streams.entries(f"{stream}.dlq")
    assert (lost.fate, [entry.body for entry in kept]) == (Fate.DONE, [b"precious"])


@pytest.mark.parametrize("delay", [0.0, 3600.0], ids=["dead-letter", "delayed-retry"])
def test_a_verdict_whose_answer_was_lost_is_carried_out_once(
    redis_server: RedisServer, stream: str, delay: float
) -> None:
    """S6, S8: asked again, the script finds what it has written the first time."""
    redis_server.streams.publish(stream, b"precious")
    with (
        Proxy(redis_server.url) as proxy,
        hands(redis_server, stream, url=proxy.url_for(redis_server.url)) as consumer,
    ):
        (delivery,) = consumer.get(1)
        trim(redis_server, stream)
        proxy.lose_replies(b"x-chronicle-attempts")
        given = consumer.give(delivery, Action.REQUEUE if delay else Action.DEAD_LETTER, delay=delay)
        with pytest.raises(ConnectionLost):
            consumer.turn_until(lambda: False, "the loss")
        consumer.reconnect()
        consumer.transport.settle((given,))  # as the engine does
        consumer.turn_until(lambda: given.fate is not Fate.OPEN, "an answer")
        assert given.fate is Fate.DONE
    kept = redis_server.streams.delayed(stream) if delay else redis_server.streams.entries(f"{stream}.dlq")
    assert [entry.body for entry in kept] == [b"precious"]


def test_a_group_that_was_deleted_meanwhile_does_not_say_that_a_verdict_was_carried_out(
    redis_server: RedisServer, stream: str, consumer: Hands
) -> None:
    """S6, S7: the verdict never arrived, so there is no dead letter, and nobody is told of one."""
    redis_server.streams.publish(stream, b"precious")
    (delivery,) = consumer.get(1)
    lost = consumer.give(delivery, Action.DEAD_LETTER)
    consumer.reconnect()
    redis_server.streams.delete(stream)
    consumer.transport.settle((lost,))  # as the engine does
    consumer.turn_until(lambda: lost.fate is not Fate.OPEN, "an answer")
    assert lost.fate is Fate.STALE
    assert redis_server.streams.length(f"{stream}.dlq") == 0
