"""A message's headers and properties, and the history of its death, as bytes in the file."""

from __future__ import annotations

import json
from typing import Any

from chronicle.core.deadletters.death import failed
from chronicle.core.delivery import Envelope
from chronicle.core.json_tags import tag, untag
from chronicle.core.record import dump
from chronicle.core.settlement import Settlement
from chronicle.core.trace_headers import RAW_CORRELATION_ID, RAW_TRACEPARENT
from chronicle.transports.seam import Outgoing


def pack(outgoing: Outgoing) -> bytes | None:
    """Headers and properties; None when there are none."""
    if not outgoing.headers and not outgoing.properties:
        return None
    return dump({"headers": tag(outgoing.headers), "properties": tag(outgoing.properties)})


def story(settlement: Settlement, consumer: str, now: int) -> bytes:
    """Why, where, when and after how many tries a message died: headers of its dead letter."""
    facts = failed(settlement.delivery, settlement.verdict.reason, consumer, now)
    return dump({name: tag(fact) for name, fact in facts.items()})


def unpack(raw: tuple[bytes | None, bytes | None]) -> Envelope:
    """An envelope from what `pack` and `story` made; the story overrides headers of the same name."""
    envelope, death = raw
    try:
        headers: dict[str, Any] = {} if death is None else untag(json.loads(death))
        if envelope is None:
            return Envelope(headers)
        written = json.loads(envelope)
        return Envelope({**untag(written["headers"]), **headers}, untag(written["properties"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        return Envelope(fault=f"the headers cannot be read: {type(error).__name__}")


def names_trace(raw: tuple[bytes | None, bytes | None]) -> bool:
    """Whether what `pack` made may name a trace or a conversation."""
    envelope = raw[0]
    return envelope is not None and (RAW_TRACEPARENT in envelope or RAW_CORRELATION_ID in envelope)
