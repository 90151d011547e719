"""Whose an entry of a Redis stream is: nobody is robbed, nothing is stranded, no try is counted twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Action
from chronicle.core.settlement import Fate
from chronicle.errors import ConnectionLost
from chronicle.transports.redis import upkeep
from chronicle.transports.redis.intake import DELIVERIES
from support.proxy import Mode, Proxy
from support.redis_server import RedisServer
from support.stream_hands import hands, is_over, left_behind

REREADING: Final = b"ids[#ids] or false"  # the script that reads the own pending list, and no other


@pytest.fixture
def stream(redis_server: RedisServer) -> Iterator[str]:
    yield redis_server.streams.make(redis_server.streams.name("claims"))
    redis_server.streams.clear()


def test_a_touch_that_is_late_does_not_end_the_next_try(redis_server: RedisServer, stream: str) -> None:
    """S4: it was asked for the first try; what it says of the second is no robbery."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream) as consumer:
        (first,) = consumer.get(1)
        time.sleep(0.6)  # the next touch is due
        failed = consumer.give(first, Action.REQUEUE)  # both travel together, the verdict first
        (again,) = consumer.get(1)
        consumer.turn_for(0.2)
        assert failed.fate is Fate.DONE
        assert not is_over(again)
        assert consumer.settle(again, Action.ACK) is Fate.DONE
        assert consumer.reaches_the_end()
        assert consumer.said == []


def test_what_is_pending_under_our_name_and_unknown_here_is_read_again(
    redis_server: RedisServer, stream: str
) -> None:
    """S3, D-12: however it came to be there, it is not the end of the stream."""
    with hands(redis_server, stream) as consumer:
        consumer.turn_for(0.2, room=1)
        redis_server.streams.publish(stream, b"stranded")
        redis_server.streams.read(stream, consumer.tag)
        assert not consumer.reaches_the_end()
        (found,) = consumer.get(1)
        assert (found.body, found.attempts) == (b"stranded", 1)


def test_another_consumers_short_claim_idle_robs_nobody(redis_server: RedisServer, stream: str) -> None:
    """S4: what is in work is touched more often than anybody may claim, whatever this process was told."""
    with (
        hands(redis_server, stream, tag="patient") as patient,
        hands(redis_server, stream, tag="hasty", claim_idle=2.0) as hasty,
    ):
        held: list[Delivery] = []
        robbed: list[Delivery] = []
        began = time.monotonic()
        while time.monotonic() - began < 5.0:
            if len(held) < 5 and time.monotonic() - began >= 0.35 * len(held):
                redis_server.streams.publish(stream, b"%d" % len(held))
                held += patient.get(1)
            patient.turn(0)
            # It looks only for what others have left: what is new is the patient one's.
            robbed += hasty.turn(1)
        assert robbed == []
        assert not any(is_over(delivery) for delivery in held)
        assert redis_server.streams.held(stream) == {"patient": 5}


def test_reconnects_while_rereading_count_no_tries(redis_server: RedisServer, stream: str) -> None:
    """D-12, S3: what an earlier process left had one try more, however often the answer is lost."""
    redis_server.streams.publish(stream, b"1", b"2", b"3")
    left_behind(redis_server, stream, "hands", 3, idle=60)
    with (
        Proxy(redis_server.url) as proxy,
        hands(redis_server, stream, url=proxy.url_for(redis_server.url)) as consumer,
    ):
        proxy.lose_replies(REREADING, DELIVERIES + 1)
        came: list[Delivery] = []
        deadline = time.monotonic() + 30
        while len(came) < 3 and time.monotonic() < deadline:
            came += consumer.turn_or_reconnect()
        assert proxy.lost == DELIVERIES + 1
        assert [delivery.attempts for delivery in came] == [2, 2, 2]
    assert redis_server.streams.length(f"{stream}.dlq") == 0
    assert [one.count for one in redis_server.streams.pending(stream)] == [2, 2, 2]


def test_a_thawed_process_reads_nothing_under_a_name_that_is_taken(
    redis_server: RedisServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: it asks first whether the name is still its own; the other one gets every entry."""
    with hands(redis_server, stream, tag="name") as frozen:
        frozen.turn_for(0.2, room=1)
        # As if it had stood still until its lease was over.
        redis_server.streams.delete(f"{stream}.lease.chronicle.name")
        with hands(redis_server, stream, tag="name") as living:
            redis_server.streams.publish(stream, b"1", b"2", b"3", b"4", b"5")
            came = living.get(1)
            time.sleep(1.2)  # the next look at the stream is due, too
            with monkeypatch.context() as patched:
                patched.setattr(upkeep, "LEASE", 1000)  # that was long enough
                with pytest.raises(ConnectionLost, match="another process uses the name"):
                    frozen.turn_until(lambda: False, "the loss", room=5)
            assert redis_server.streams.held(stream) == {"name": 1}
            frozen.reconnect()
            frozen.turn_for(0.2)
            assert len(redis_server.streams.consumers(stream)) == 1  # it holds nothing, so it is not listed
            came += living.get(4)
            assert [delivery.body for delivery in came] == [b"1", b"2", b"3", b"4", b"5"]
            assert all(living.settle(delivery, Action.ACK) is Fate.DONE for delivery in came)
            assert living.reaches_the_end()


def test_the_dead_are_found_behind_thousands_of_fresh_entries(redis_server: RedisServer, stream: str) -> None:
    """S4, D-12: with room for two, a search of the pending list is still soon over."""
    with redis_server.client() as client, client.pipeline(transaction=False) as pipeline:
        for number in range(4000):
            pipeline.xadd(stream, {"data": b"%d" % number})
        pipeline.execute()
    redis_server.streams.read(stream, "living", 3998)
    dead = left_behind(redis_server, stream, "dead", 2, idle=3600)
    with hands(redis_server, stream, prefetch=2) as consumer:
        found = consumer.get(2)
        assert [delivery.origin["id"] for delivery in found] == dead
        assert [delivery.attempts for delivery in found] == [2, 2]
        consumer.turn_until(lambda: consumer.said, "a word about it")
        assert set(consumer.said) == {"redis.claimed"}


def test_room_for_a_few_is_filled_while_others_are_in_work(redis_server: RedisServer, stream: str) -> None:
    """D-7: idle workers get what waits, even if there is room for less than a quarter of the prefetch."""
    redis_server.streams.publish(stream, *[b"slow"] * 8)
    with hands(redis_server, stream, prefetch=10) as consumer:
        consumer.get(8, room=8)
        redis_server.streams.publish(stream, *[b"fast"] * 5)
        assert [delivery.body for delivery in consumer.get(2, room=2)] == [b"fast"] * 2


def test_what_is_settled_while_the_own_list_is_read_is_not_handed_out_again(
    redis_server: RedisServer, stream: str
) -> None:
    """S3, F5: the answer still names it, because the acknowledgement travels behind the question."""
    redis_server.streams.publish(stream, b"1", b"2")
    with (
        Proxy(redis_server.url) as proxy,
        hands(redis_server, stream, url=proxy.url_for(redis_server.url)) as consumer,
    ):
        first, second = consumer.get(2)
        consumer.reconnect()
        proxy.set(Mode.DELAY)
        assert consumer.turn() == []  # the question is under way
        acked = consumer.give(first, Action.ACK)
        proxy.set(Mode.PASS)
        assert consumer.turn_for(1.0, room=5) == []
        assert acked.fate is Fate.DONE
        assert [one.id for one in redis_server.streams.pending(stream)] == [second.origin["id"]]
        assert consumer.settle(second, Action.ACK) is Fate.DONE
        assert consumer.reaches_the_end()


def test_a_verdict_that_never_left_is_not_taken_for_done(redis_server: RedisServer, stream: str) -> None:
    """S6: after a loss the entry may be another consumer's; then there is no dead letter of ours."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream) as consumer:
        (delivery,) = consumer.get(1)
        lost = consumer.give(delivery, Action.DEAD_LETTER)
        with redis_server.client() as client:
            client.xclaim(stream, "chronicle", "other", 0, [delivery.origin["id"]])
        consumer.reconnect()
        consumer.transport.settle((lost,))  # as the engine does
        consumer.turn_until(lambda: lost.fate is not Fate.OPEN, "an answer")
        assert lost.fate is Fate.STALE
        assert redis_server.streams.length(f"{stream}.dlq") == 0
        assert redis_server.streams.held(stream) == {"other": 1}


def test_who_was_cut_off_is_told_that_its_entries_are_gone(redis_server: RedisServer, stream: str) -> None:
    """S4: a claim that another consumer has now ends its lease, and its verdict changes nothing."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream) as slow:
        (delivery,) = slow.get(1)
        with redis_server.client() as client:
            client.xclaim(stream, "chronicle", "other", 0, [delivery.origin["id"]])
        slow.hear("redis.taken_over")
        assert is_over(delivery)
        assert slow.settle(delivery, Action.ACK) is Fate.STALE
        assert redis_server.streams.held(stream) == {"other": 1}


def test_a_crash_counts_for_an_entry_that_was_retried_before(redis_server: RedisServer, stream: str) -> None:
    """D-2, S4: the tries before it went back to the stream, and those that its consumers did not survive."""
    redis_server.streams.publish(stream, b"1")
    with hands(redis_server, stream) as consumer:
        (first,) = consumer.get(1)
        assert consumer.settle(first, Action.REQUEUE, delay=0.1) is Fate.DONE
        (second,) = consumer.get(1)
        assert second.attempts == 2
    with redis_server.client() as client:  # it was killed, long ago
        client.xclaim(stream, "chronicle", "hands", 0, [second.origin["id"]], idle=3_600_000, justid=True)
    with hands(redis_server, stream, tag="next") as after:
        (third,) = after.get(1)
        assert (third.body, third.attempts) == (b"1", 3)


def test_what_failed_while_the_connection_was_lost_is_tried_again_once(
    redis_server: RedisServer, stream: str
) -> None:
    """S3, D-1: the requeue and the own pending list are answered together, and both name the entry."""
    redis_server.streams.publish(stream, b"1", b"2", b"3")
    with hands(redis_server, stream) as consumer:
        first, *others = consumer.get(3)
        consumer.reconnect()
        failed = consumer.give(first, Action.REQUEUE)
        came = consumer.turn_for(1.0, room=5)
        assert failed.fate is Fate.DONE
        assert [(delivery.body, delivery.attempts) for delivery in came] == [(b"1", 2)]
        assert [consumer.settle(delivery, Action.ACK) for delivery in (*others, *came)] == [Fate.DONE] * 3
        assert consumer.reaches_the_end()
        assert consumer.said == []
