"""A span for each message, where OpenTelemetry is in use.

Rule 1: nobody pays for it who does not use it. Whoever does has imported it when the syncer is entered: the
        syncer itself, or `opentelemetry-instrument`. Otherwise it is not imported here either.
Rule 2: names and values are those of the semantic conventions for messaging (1.44, "process" spans). The
        message's creation context is the parent, and linked. What begins with `chronicle.` is ours.
Rule 3 (D-21): no body, no key, and no text that is not masked. An exception is not recorded as an event,
        which would quote it; a failed span is described by the verdict's reason, which is masked.
Rule 4: no trouble with spans is a message's trouble: it is logged once, and the message is handled.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, NamedTuple

from chronicle.core.delivery import Delivery
from chronicle.core.outcome import Asked, Exhausted, Failed, Fatal, Invalid, Outcome, Revoked
from chronicle.core.settlement import Settlement
from chronicle.errors import DeadLetter, Drop, Retry
from chronicle.telemetry.events import address, label, number
from chronicle.telemetry.redaction import name_of, one_line
from chronicle.telemetry.trace_context import shown_id

TRACER: Final = "chronicle"
SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
PROCESS: Final = "process"

_log: Final = logging.getLogger(__name__)


class Begun(NamedTuple):
    """A span that is current, and what ends that."""

    span: Any
    context: Any
    token: Any


def consumer_spans() -> ConsumerSpans | None:
    """Spans for the messages of this process, if somebody in it uses OpenTelemetry.

    A client that imports it on the chance that it is used is not somebody: there must be a provider of
    tracers, or somebody who propagates contexts.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provided = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return ConsumerSpans() if provided or "opentelemetry.propagate" in sys.modules else None


class ConsumerSpans:
    """Begins and ends the span of one delivery at a time, in whichever worker calls it."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate, trace

        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer(TRACER, schema_url=SCHEMA)
        self._complained = False

    def begin(self, delivery: Delivery) -> Begun | None:
        """A span for this delivery, current from now on; None if there cannot be one."""
        try:
            return self._begin(delivery)
        except Exception as error:
            self._complain(error)
            return None

    def end(self, begun: Begun | None, settlement: Settlement) -> Settlement:
        """The delivery was handled: its span ends with what became of it."""
        if begun is not None:
            try:
                self._end(begun, settlement)
            except Exception as error:
                self._complain(error)
        return settlement

    def _begin(self, delivery: Delivery) -> Begun:
        trace = self._trace
        ambient = trace.get_current_span().get_span_context()
        carrier = {name: value for name, value in delivery.headers.items() if isinstance(value, str)}
        parent = self._propagate.extract(carrier, self._context.get_current())
        creation = trace.get_current_span(parent).get_span_context()
        # If the message names none, what is current here is the parent, and needs no link.
        linked = [] if creation == ambient else [known for known in (creation, ambient) if known.is_valid]
        span = self._tracer.start_span(
            f"{PROCESS} {label(delivery.queue)}",
            parent,
            trace.SpanKind.CONSUMER,
            attributes_of(delivery),
            [trace.Link(known) for known in linked],
        )
        current = trace.set_span_in_context(span, parent)
        return Begun(span, current, self._context.attach(current))

    def _end(self, begun: Begun, settlement: Settlement) -> None:
        # A syncer may have left a context of its own, and a coroutine that is thrown away ends in any.
        if self._context.get_current() is begun.context:
            self._context.detach(begun.token)
        if isinstance(settlement.outcome, Revoked):
            return  # it was not processed; a span that does not end is exported nowhere
        span, error = begun.span, error_type(settlement.outcome)
        if span.is_recording():
            span.set_attribute("chronicle.verdict", settlement.verdict.action.value)
            if settlement.action_id is not None:
                span.set_attribute("chronicle.action_id", number(settlement.action_id))
            if error:
                span.set_attribute("error.type", error)
                reason = one_line(settlement.verdict.reason, 500)
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, reason))
        span.end()

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            _log.warning("a message has no span, and others may have none: %s", name_of(type(error)))


def attributes_of(delivery: Delivery) -> dict[str, Any]:
    """What is known of a delivery before it is handled."""
    origin, queue = delivery.origin, label(delivery.queue)
    attributes: dict[str, Any] = {
        "messaging.system": delivery.transport,
        "messaging.operation.name": PROCESS,
        "messaging.operation.type": PROCESS,
        "messaging.destination.name": queue,
        "messaging.message.body.size": len(delivery.body),
        "chronicle.attempts": number(delivery.attempts),
    }
    if "exchange" in origin:
        exchange, key = label(str(origin["exchange"])), address(str(origin["routing_key"]))
        parts = [exchange, key, queue] if key != queue else [exchange, queue]
        attributes["messaging.destination.name"] = ":".join(filter(None, parts))
        attributes["messaging.destination.template"] = queue  # routing keys may be many
        attributes["messaging.rabbitmq.message.delivery_tag"] = origin["delivery_tag"]
        if key:
            attributes["messaging.rabbitmq.destination.routing_key"] = key
    if "partition" in origin:
        attributes["messaging.destination.partition.id"] = str(origin["partition"])
        attributes["messaging.kafka.offset"] = origin["offset"]
        if delivery.properties.get("tombstone"):
            attributes["messaging.kafka.message.tombstone"] = True
    message_id = delivery.properties.get("message_id", origin.get("id"))
    if isinstance(message_id, int | str) and message_id != "":
        attributes["messaging.message.id"] = shown_id(str(message_id))
    if (correlation_id := delivery.correlation_id) is not None:
        attributes["messaging.message.conversation_id"] = shown_id(correlation_id)
    return attributes


def error_type(outcome: Outcome) -> str:
    """Why a message was not handled, in one of few words; empty if it was, or if that was meant."""
    match outcome:
        case Failed() | Invalid() | Exhausted() | Fatal():
            return type(outcome).__name__.lower()
        case Asked(ask=Retry()):
            return "retry"
        case Asked(ask=DeadLetter()):
            return "dead_letter"
        case Asked(ask=ask) if not isinstance(ask, Drop):
            return "failed"
    return ""
