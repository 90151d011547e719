"""What a broker handed over.

Rule 1: a delivery never changes; the body is the broker's bytes, always. One that is so large that nobody
        would look at it may be left unread: `unread` says why, the body is empty, and only the broker
        itself can move such a message.
Rule 2: headers and properties are decoded on first access. A header that cannot be decoded is the
        problem of its own message: `envelope.fault` says so and the headers read as empty.
Rule 3: whether a message may name a trace is asked of the bytes, by the transport's `names_trace`: a line in
        the log is not worth decoding headers that name none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import field
from typing import Any, Final, TypeAlias

from chronicle.core.frozen import frozen
from chronicle.core.trace_headers import correlation_id_in, traceparent_in

Facts: TypeAlias = Mapping[str, Any]
NOTHING: Final[Facts] = {}
REJECTED: Final = ("rejected", "delivery_limit")  # the reasons in x-death that end a try


@frozen
class Envelope:
    """What is written on a message besides its body."""

    headers: Facts = field(default_factory=dict)
    properties: Facts = field(default_factory=dict)
    fault: str = ""


BLANK: Final = Envelope()


class Lease:
    """A transport's permission to handle a delivery here, which it can withdraw.

    A partition that moved to another consumer ends the lease of every delivery that came from it: a worker
    that has not started on one hands it back, and a result that comes later is stale.

    A worker begins on one thread while the transport ends the lease on another. Each sets its own flag before
    it looks at the other's, so at least one of them sees what the other did: a transport that has ended a
    lease waits for a worker only if the lease has begun.
    """

    __slots__ = ("begun", "over")

    def __init__(self) -> None:
        self.begun = False
        self.over = False

    def begin(self) -> bool:
        """A worker starts on the delivery; False if it must not, because it was taken back."""
        self.begun = True
        if self.over:
            self.begun = False
        return self.begun

    def rest(self) -> None:
        """A try is over, and another may come."""
        self.begun = False

    def end(self) -> None:
        """Take the delivery back."""
        self.over = True


class Delivery:
    """One message as a broker handed it over: bytes, headers, and the broker's facts about it.

    `origin` holds what only this kind of broker knows (exchange and routing key, topic and offset, stream
    and id). `unread` says why the body is missing, if it is. `handle` belongs to the transport that made the
    delivery; no other code looks inside. `lease` is for transports that can lose a delivery while the
    connection lives. `failed` is when a try of it first failed in this process, in milliseconds since 1970.
    """

    __slots__ = ("_envelope", "_names_trace", "_open", "_raw", "_timestamp", "body", "counted", "failed",
                 "handle", "lease", "origin", "queue", "redelivered", "transport", "unread")  # fmt: skip

    def __init__(
        self,
        body: bytes,
        *,
        queue: str,
        transport: str,
        redelivered: bool = False,
        counted: int = 0,
        timestamp: int | None = None,
        origin: Facts = NOTHING,
        handle: Any = None,
        lease: Lease | None = None,
        envelope: Envelope | None = BLANK,
        open_envelope: Callable[[Any], Envelope] | None = None,
        raw_envelope: Any = None,
        names_trace: Callable[[Any], bool] | None = None,
        unread: str = "",
    ) -> None:
        self.body = body
        self.unread = unread
        self.queue = queue
        self.transport = transport
        self.redelivered = redelivered
        self.counted = counted
        self.failed = 0
        self._timestamp = timestamp
        self.origin = origin
        self.handle = handle
        self.lease = lease
        self._envelope = None if open_envelope else envelope
        self._open = open_envelope
        self._raw = raw_envelope
        self._names_trace = names_trace

    @property
    def envelope(self) -> Envelope:
        """Headers and properties, decoded on first access."""
        envelope = self._envelope
        if envelope is None:
            assert self._open is not None
            envelope = self._envelope = self._open(self._raw)
        return envelope

    @property
    def headers(self) -> Facts:
        return self.envelope.headers

    @property
    def properties(self) -> Facts:
        return self.envelope.properties

    @property
    def timestamp(self) -> int | None:
        """When it was published, in milliseconds since 1970, if that is recorded."""
        if self._timestamp is None:
            seconds = count(self.properties.get("timestamp"))  # AMQP's own property
            return seconds * 1000 or None
        return self._timestamp

    @property
    def traceparent(self) -> str | None:
        """The trace it belongs to (W3C Trace Context), if it names a valid one."""
        return traceparent_in(self.headers) if self.may_name_trace() else None

    @property
    def correlation_id(self) -> str | None:
        """The conversation it belongs to, if it names one."""
        return correlation_id_in(self.headers, self.properties) if self.may_name_trace() else None

    def may_name_trace(self) -> bool:
        """Whether it is worth asking which; most messages name none."""
        return self._envelope is not None or self._names_trace is None or self._names_trace(self._raw)

    @property
    def attempts(self) -> int:
        """Which try this is, counted from one, as far as is known (D-2)."""
        return 1 + max(self.counted, int(self.redelivered), counted_by_headers(self.headers, self.queue))

    def again(self, now: int) -> Delivery:
        """The same message for its next try, after one that failed now: one more is counted.

        Handle and lease are the same: to the broker it is one delivery.
        """
        attempts = self.attempts  # which opens the envelope, if anybody ever does: once is enough
        another = copy(self)
        another.redelivered = True
        another.counted = attempts
        another.failed = self.failed or now
        return another

    def with_headers(self, headers: Facts) -> Delivery:
        """The same message with these headers instead of its own."""
        envelope = self.envelope
        another = copy(self)
        another._envelope = Envelope(headers, envelope.properties, envelope.fault)
        return another

    def __repr__(self) -> str:
        """Ids and sizes only: a delivery ends up in tracebacks and logs."""
        return f"<Delivery {self.transport} {self.queue!r} {len(self.body)} bytes>"


def counted_by_headers(headers: Facts, queue: str) -> int:
    """How many tries the headers record: the broker's count, our own, and deaths in this very queue."""
    if not headers:
        return 0
    deaths = sum(
        count(entry.get("count"))
        for entry in x_death(headers)
        if entry.get("queue") == queue and entry.get("reason") in REJECTED
    )
    return max(count(headers.get("x-delivery-count")), count(headers.get("x-chronicle-attempts")), deaths)


def completed_cycles(headers: Facts, queue: str) -> int:
    """How often this message went round a dead-letter loop: `x-death[0].count` (R-004-13).

    A wait in one of chronicle's own retry queues is a try and no round (D-3): those entries are passed over.
    """
    for entry in x_death(headers):
        where = entry.get("queue")
        if not (isinstance(where, str) and where.startswith(f"{queue}.retry.")):
            return count(entry.get("count"))
    return 0


def x_death(headers: Facts) -> list[Facts]:
    """The well-formed entries of x-death; a producer may have forged anything (RB11)."""
    entries = headers.get("x-death")
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def count(value: object) -> int:
    """A count from a header: a whole number above zero; anything else is zero."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
