"""A stream entry as a delivery, and a message as the fields of an entry.

Rule 1: the body is the value of the first field of the chosen name, byte for byte. The other fields are
        headers: text where they are UTF-8, else bytes; of two with the same name the last counts. The fields
        as they came stay with the claim, so that a dead letter has all of them, untouched.
Rule 2: an entry without a body is bad input, not an empty message: it may be somebody else's entry.
Rule 3: chronicle's own fields are the headers of core/deadletters/death.py, and two that only Redis needs:
        which group an entry that went back to the stream is meant for, and which entry it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from chronicle.core.deadletters.death import ATTEMPTS, ENTRY, FIRST, LAST, MOST, REDRIVES, failed
from chronicle.core.delivery import Delivery, Envelope, Lease
from chronicle.core.json_tags import tag
from chronicle.core.record import dump
from chronicle.core.trace_headers import RAW_CORRELATION_ID, RAW_TRACEPARENT
from chronicle.errors import InvalidMessage
from chronicle.transports.seam import Outgoing

NAME: Final = "redis"
GROUP: Final = "x-chronicle-group"
STREAM: Final = "x-chronicle-stream"
ORIGIN: Final = ENTRY
PAST: Final = (GROUP, STREAM, ORIGIN)  # what a message that somebody publishes must not say
NUMBERS: Final = frozenset((ATTEMPTS, FIRST, LAST, REDRIVES))
COUNTED: Final = ATTEMPTS.encode()
FOR_GROUP: Final = GROUP.encode()
FROM_STREAM: Final = STREAM.encode()
MOST_FIELDS: Final = 3000  # a script can pass on a few thousand arguments, and each field is two


class Claim(Lease):
    """What proves that an entry is ours: its id, and the delivery count that we gave it.

    Every claim of an entry raises or sets its count, so no proof is good twice; whoever took it over
    meanwhile has raised it. `pairs` are the fields as they came.
    """

    __slots__ = ("count", "decided", "failed", "fresh", "id", "pairs", "trimmed", "uncounted")

    def __init__(self, id_: bytes, count: int, pairs: Sequence[bytes], now: float) -> None:
        self.begun = self.over = False
        self.id = id_
        self.count = count
        self.pairs = pairs
        self.fresh = now  # when the server last heard that it is in work
        self.trimmed = False  # its entry is gone from the stream: only we have its contents
        self.uncounted = 0  # tries that Redis no longer counts, because it was trimmed
        self.failed = 0  # when a try of it first failed here, in milliseconds since 1970
        self.decided = 0  # when a script was first asked to carry its verdict out; as above

    def again(self, now: float) -> Claim:
        """The proof for another try of the same entry."""
        counted = not self.trimmed
        another = Claim(self.id, self.count + counted, self.pairs, now)
        another.failed, another.trimmed = self.failed, self.trimmed
        another.uncounted = self.uncounted + (not counted)
        return another


def delivery_of(claim: Claim, stream: str, fields: tuple[bytes, ...]) -> Delivery:
    """The entry as the engine sees it; its delivery count says which try this is (S4)."""
    pairs = claim.pairs
    # Nearly everybody writes the body first.
    body = pairs[1] if pairs[0] == fields[0] else body_in(pairs, fields)
    id_ = claim.id.decode("ascii", "replace")
    tries = claim.count - 1 + claim.uncounted + (tries_in(pairs) if len(pairs) > 2 else 0)
    return Delivery(
        b"" if body is None else body,
        queue=stream,
        transport=NAME,
        redelivered=tries > 0,
        counted=tries,
        timestamp=timestamp_of(id_),
        origin={"stream": stream, "id": id_},
        handle=claim,
        lease=claim,
        open_envelope=open_envelope,
        raw_envelope=(pairs, fields),
        names_trace=names_trace,
        unread="" if body is not None else no_body(fields),
    )


def tries_in(pairs: Sequence[bytes]) -> int:
    """The tries that an entry had before it went back to the stream."""
    value = body_in(pairs, (COUNTED,)) or b""
    return min(int(value), MOST) if value.isdigit() and len(value) < 19 else 0


def body_in(pairs: Sequence[bytes], fields: tuple[bytes, ...]) -> bytes | None:
    """The value of the first field that has the body; None if there is none."""
    place = place_of(pairs, fields)
    return None if place is None else pairs[place + 1]


def place_of(pairs: Sequence[bytes], fields: tuple[bytes, ...]) -> int | None:
    """Where the field with the body stands."""
    names = list(pairs[::2])
    return next((2 * names.index(field) for field in fields if field in names), None)


def group_meant(pairs: Sequence[bytes], stream: str) -> bytes | None:
    """The group an entry that failed went back to this stream for; empty: readers without one; None: all.

    What came from another stream is news to everybody: a dead letter, or one that was redriven elsewhere.
    """
    return body_in(pairs, (FOR_GROUP,)) if body_in(pairs, (FROM_STREAM,)) == stream.encode() else None


def no_body(fields: tuple[bytes, ...]) -> str:
    wanted = " or ".join(field.decode("utf-8", "replace") for field in fields)
    return f"the entry has no field {wanted}; --field names another one"


def timestamp_of(id_: str) -> int | None:
    """When it was added, in milliseconds since 1970; an id that its producer chose may be any number."""
    milliseconds = id_.partition("-")[0]
    return int(milliseconds) if milliseconds.isdigit() and len(milliseconds) < 19 else None


def open_envelope(raw: tuple[Sequence[bytes], tuple[bytes, ...]]) -> Envelope:
    """The fields other than the body, as headers."""
    pairs, fields = raw
    body = place_of(pairs, fields)
    headers: dict[str, Any] = {}
    for place in range(0, len(pairs), 2):
        if place != body:
            key = pairs[place].decode("utf-8", "backslashreplace")
            value = pairs[place + 1]
            headers[key] = _number(value) if key in NUMBERS else _text(value)
    return Envelope(headers)


def names_trace(raw: tuple[Sequence[bytes], tuple[bytes, ...]]) -> bool:
    """Whether an entry has a field that names a trace or a conversation."""
    pairs = raw[0]
    return len(pairs) > 2 and (RAW_TRACEPARENT in pairs or RAW_CORRELATION_ID in pairs)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _number(value: bytes) -> int | str | bytes:
    return int(value) if value.isdigit() and len(value) < 19 else _text(value)


def pairs_of(message: Outgoing, field: bytes, without: Iterable[str] = ()) -> list[bytes]:
    """The fields of an entry, the body first; InvalidMessage if it has more than a script passes on."""
    left_out = frozenset(without)
    pairs = [field, message.body]
    for name, value in message.headers.items():
        if name not in left_out:
            pairs += [_encoded(name), _encoded(value)]
    if len(pairs) > 2 * MOST_FIELDS:
        raise InvalidMessage(f"the message has more than {MOST_FIELDS} headers")
    return pairs


def described(delivery: Delivery, reason: str, *, consumer: str, group: str, now: int) -> list[bytes]:
    """The fields of an entry that failed: what happened to it, as fields of chronicle's own instead of older
    ones; the others untouched.

    An empty group means readers without one.
    """
    claim: Claim = delivery.handle
    facts = failed(delivery, reason, consumer, now)
    first = min(facts[FIRST], claim.failed or facts[FIRST])
    facts |= {FIRST: first, ORIGIN: delivery.origin["id"], **meant_for(delivery.queue, group)}
    return _with(claim, facts)


def meant_for(stream: str, group: str) -> dict[str, str]:
    """What an entry says that goes back to its stream for one group only."""
    return {STREAM: stream, GROUP: group}


def restored(claim: Claim, stream: str, group: str) -> list[bytes]:
    """The fields of an entry that is put on its stream again, because it was trimmed."""
    return _with(claim, meant_for(stream, group))


def _with(claim: Claim, facts: Mapping[str, Any]) -> list[bytes]:
    """The fields as they came, but for those that these facts replace."""
    own = {name.encode(): _encoded(value) for name, value in facts.items()}
    kept = [pair for pair in pairs_in(claim) if pair[0] not in own]
    return [part for pair in (*kept, *own.items()) for part in pair]


def moved(delivery: Delivery, claim: Claim, message: Outgoing, fields: tuple[bytes, ...]) -> list[bytes]:
    """The fields of an entry that goes elsewhere as this message: what is not changed is as it came."""
    before, after = delivery.headers, message.headers
    same = {name for name, value in after.items() if name in before and before[name] == value}
    body = place_of(claim.pairs, fields)
    pairs: list[bytes] = []
    for place, (name, value) in enumerate(pairs_in(claim)):
        if 2 * place == body or name.decode("utf-8", "backslashreplace") in same:
            pairs += [name, value]
    for header, fact in after.items():
        if header not in same:
            pairs += [_encoded(header), _encoded(fact)]
    if len(pairs) > 2 * MOST_FIELDS:
        raise InvalidMessage(f"the entry has more than {MOST_FIELDS} fields")
    return pairs


def pairs_in(claim: Claim) -> Iterator[tuple[bytes, bytes]]:
    return zip(claim.pairs[::2], claim.pairs[1::2], strict=True)


def _encoded(value: Any) -> bytes:
    """A header as a field: text and bytes as they are, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    try:
        return value.encode() if isinstance(value, str) else dump(tag(value))
    except (UnicodeEncodeError, TypeError, ValueError):
        raise InvalidMessage("a header cannot be written as text") from None
