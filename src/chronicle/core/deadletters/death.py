"""Why a message failed or died, as a small fixed set of headers, and reading it back.

Rule 1: the set is fixed, each header is capped, and a new failure replaces the last one: a message that
        goes round for weeks does not grow.
Rule 2: a reason is masked before it comes here (it is written by the policy or by a syncer); nothing of the
        body is ever put into a header.
Rule 3: readers trust nothing: whatever a producer forged reads as a missing value (Z16).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from chronicle.core.delivery import REJECTED, Delivery, Facts, count, x_death
from chronicle.core.frozen import frozen

REASON: Final = "x-chronicle-reason"
ATTEMPTS: Final = "x-chronicle-attempts"
QUEUE: Final = "x-chronicle-queue"
CONSUMER: Final = "x-chronicle-consumer"
FIRST: Final = "x-chronicle-first-failed-at"  # milliseconds since 1970
LAST: Final = "x-chronicle-last-failed-at"
REDRIVES: Final = "x-chronicle-redrives"
# Where a dead letter was before, in the words of its broker: the id of a stream's entry, or a log's position.
ENTRY: Final = "x-chronicle-id"
PARTITION: Final = "x-chronicle-partition"
OFFSET: Final = "x-chronicle-offset"
SAME_DEATH: Final = 1000  # milliseconds
LONGEST: Final = 500  # bytes of a text
_RETRY_QUEUE: Final = re.compile(r"\.retry\.[0-9a-z]+\Z")  # see queues.retry_queue_name
MOST: Final = 2**31 - 1  # tries; a producer can write any number, and the next one up must fit a header

# What the broker writes about a message's deaths; a redriven message starts without them.
BROKERS: Final = (
    "x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
    "x-last-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-delivery-count",
    "x-acquired-count",
)  # fmt: skip
# What sends a copy elsewhere: RabbitMQ obeys it on every publish, and the first publish already did that.
COPIES: Final = ("CC", "BCC")


@frozen
class Death:
    """What is known about the end of a message."""

    reason: str = ""
    attempts: int = 0  # 0: not recorded
    queue: str = ""  # where it died
    consumer: str = ""
    first: int | None = None  # failed at, milliseconds since 1970
    last: int | None = None
    redrives: int = 0


def failed(delivery: Delivery, reason: str, consumer: str, now: int) -> dict[str, Any]:
    """The headers that describe this failure; they replace older ones of the same names."""
    return {
        REASON: capped(reason),
        ATTEMPTS: min(delivery.attempts, MOST),
        QUEUE: capped(delivery.queue),
        CONSUMER: capped(consumer),
        FIRST: min(count(delivery.headers.get(FIRST)) or delivery.failed or now, now),
        LAST: now,
    }


def returns_by_expiry(headers: Facts, queue: str) -> bool:
    """Whether a broker lets a message with this x-death come back to `queue` when its time is up.

    RabbitMQ up to 3.13 goes by the x-death it finds, whoever wrote it, and deletes a message that would cycle
    without ever being rejected (RB12). A form the broker never writes counts as no.
    """
    entries = headers.get("x-death")
    if entries is None:
        return True
    if not isinstance(entries, list) or not all(map(_is_a_death, entries)):
        return False
    for entry in entries:
        if entry["reason"] == "rejected":
            return True
        if entry["queue"] == queue:
            return False
    return True


def _is_a_death(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("queue"), str)
        and isinstance(entry.get("reason"), str)
        and count(entry.get("count")) > 0
    )


def death_of(delivery: Delivery) -> Death:
    """What the headers of a dead letter say: ours if present, else the broker's x-death.

    A death that the broker wrote after our last failure is another one: its reason and time count.
    """
    headers = delivery.headers
    last = next(iter(x_death(headers)), {})
    first_at, last_at = count(headers.get(FIRST)), count(headers.get(LAST))
    died = last.get("time")
    at = int(died.timestamp() * 1000) if isinstance(died, datetime) else count(died) * 1000
    # The broker counts in seconds: what it moved for us a moment later has our own failure's second or more.
    newer = at > last_at + SAME_DEATH
    told = (last.get("reason"), headers.get(REASON)) if newer else (headers.get(REASON), last.get("reason"))
    return Death(
        reason=_text(told[0]) or _text(told[1]),
        attempts=_tries(delivery, last) if newer else count(headers.get(ATTEMPTS)),
        queue=_text(headers.get(QUEUE)) or _text(last.get("queue")),
        consumer=_text(headers.get(CONSUMER)),
        first=first_at or at or None,
        last=(at if newer else last_at or at) or None,
        redrives=count(headers.get(REDRIVES)),
    )


def _tries(delivery: Delivery, last: Facts) -> int:
    """Which try a broker's rejection ended, as far as the headers tell; 0: they do not (D-22).

    What RabbitMQ moves itself does not say how often it was delivered: a first round of a loop may have been
    one try, or two. Later rounds, and tries that we counted before, can be told.
    """
    headers = delivery.headers
    told, rounds = count(headers.get(ATTEMPTS)), 0
    if last.get("reason") in REJECTED:
        told += bool(told)
        rounds = sum(
            count(entry.get("count"))
            for entry in x_death(headers)
            if entry.get("queue") == last.get("queue") and entry.get("reason") in REJECTED
        )
    return max(told, rounds if rounds > 1 else 0)


def came_from(delivery: Delivery, queue: str) -> str:
    """The queue a dead letter died in: by the broker's word, else by our header, else the one asked about.

    Anybody can write our header, and the broker puts its own entry first; but a producer can write x-death
    too (Z16), so whoever moves a letter asks whether the operator named that queue. The last rejection
    counts: what expired may have waited in the fail queue of a retry loop, or in a retry queue of ours. Never
    the queue it is in: a syncer may have been run over the dead letters themselves.
    """
    deaths = [entry for entry in x_death(delivery.headers) if not _is_a_wait(entry)]
    rejected = [entry for entry in deaths if entry.get("reason") in REJECTED]
    told = [*(entry.get("queue") for entry in (*rejected, *deaths)), delivery.headers.get(QUEUE)]
    return next((name for name in map(_text, told) if name and name != delivery.queue), queue)


def _is_a_wait(entry: Facts) -> bool:
    return entry.get("reason") == "expired" and bool(_RETRY_QUEUE.search(_text(entry.get("queue"))))


def failed_again(delivery: Delivery, reason: str, consumer: str, now: int, home: str) -> dict[str, Any]:
    """All headers of a dead letter that was retried in place and failed: it still came from `home`."""
    death = death_of(delivery)
    return {
        **unworn(delivery.headers),
        **failed(delivery, reason, consumer, now),
        ATTEMPTS: min(max(death.attempts, 1) + 1, MOST),
        QUEUE: capped(home),
        FIRST: min(death.first or now, now),
    }


def is_worn(delivery: Delivery, most: int) -> bool:
    """Whether a quorum queue has handed this out and taken it back this often (RB10).

    What was never handed out has no such count, whatever its producer wrote (Z16).
    """
    return delivery.redelivered and count(delivery.headers.get("x-delivery-count")) >= most


def unworn(headers: Facts) -> dict[str, Any]:
    """The headers of a dead letter that is put into its queue again: its whole history but the counts."""
    gone = {"x-delivery-count", "x-acquired-count", *COPIES}
    return {name: value for name, value in headers.items() if name not in gone}


def undead(headers: Facts) -> dict[str, Any]:
    """The headers without the history of a death, which would count as tries this message never had."""
    gone = {*BROKERS, *COPIES, REASON, ATTEMPTS, QUEUE, CONSUMER, FIRST, LAST}
    return {name: value for name, value in headers.items() if name not in gone}


def revived(headers: Facts) -> dict[str, Any]:
    """The headers of a message that goes back to its queue: no deaths, one redrive more."""
    return {**undead(headers), REDRIVES: min(count(headers.get(REDRIVES)) + 1, MOST)}


def capped(text: str) -> str:
    """At most LONGEST bytes, cut between characters; lone surrogates, which no broker takes, are replaced."""
    raw = text.encode("utf-8", "replace")
    return raw.decode() if len(raw) <= LONGEST else raw[: LONGEST - 3].decode("utf-8", "ignore") + "…"


def _text(value: object) -> str:
    return capped(value) if isinstance(value, str) else ""
