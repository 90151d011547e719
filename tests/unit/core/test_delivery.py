"""A delivery's next try, and the lease that a transport can end."""

from __future__ import annotations

import threading

from chronicle.core.deadletters.death import ATTEMPTS, FIRST, LAST, failed
from chronicle.core.delivery import Delivery, Envelope, Lease


def test_the_next_try_is_the_same_message_counted_once_more() -> None:
    lease, handle = Lease(), object()
    first = Delivery(b"body", queue="q", transport="test", handle=handle, lease=lease, origin={"n": 1})
    second = first.again(1000)
    third = second.again(2000)
    assert [one.attempts for one in (first, second, third)] == [1, 2, 3]
    assert [one.redelivered for one in (first, second, third)] == [False, True, True]
    assert (second.body, second.queue, second.origin) == (b"body", "q", {"n": 1})
    assert second.handle is handle
    assert second.lease is lease
    assert (first.failed, second.failed, third.failed) == (0, 1000, 1000)


def test_tries_that_the_headers_count_are_counted_on() -> None:
    """D-2: otherwise a message that had five tries elsewhere would seem to have five for ever."""
    headers = {"x-chronicle-attempts": 5}
    first = Delivery(b"", queue="q", transport="test", envelope=Envelope(headers))
    assert (first.attempts, first.again(0).attempts, first.again(0).again(0).attempts) == (6, 7, 8)


def test_a_dead_letter_tells_when_its_first_try_failed() -> None:
    """R-003-12: also when the tries between were made in memory."""
    delivery = Delivery(b"", queue="q", transport="test").again(1000).again(2000)
    story = failed(delivery, "no", "me", 3000)
    assert (story[ATTEMPTS], story[FIRST], story[LAST]) == (3, 1000, 3000)


def test_a_lease_that_is_over_cannot_begin() -> None:
    lease = Lease()
    assert (lease.begin(), lease.begun) == (True, True)
    lease.rest()
    assert (lease.begun, lease.begin()) == (False, True)
    lease.end()
    assert (lease.begun, lease.over) == (True, True)  # what runs may finish, and is waited for
    lease.rest()
    assert (lease.begin(), lease.begun) == (False, False)


def test_whoever_ends_a_lease_knows_whether_to_wait() -> None:
    """A worker begins while the transport ends it: never does one run that nobody waits for."""
    for _ in range(300):
        lease, line = Lease(), threading.Barrier(2)
        ran: list[bool] = []

        def work(lease: Lease = lease, line: threading.Barrier = line, ran: list[bool] = ran) -> None:
            line.wait()
            ran.append(lease.begin())

        worker = threading.Thread(target=work)
        worker.start()
        line.wait()
        lease.end()
        awaited = lease.begun
        worker.join()
        assert awaited or ran == [False]
