"""A span for each message, by the semantic conventions of OpenTelemetry for messaging ("process" spans)."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any, Final

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chronicle.core.delivery import Delivery, Envelope, Lease
from chronicle.core.outcome import Asked, Exhausted, Failed, Fatal, Interrupted, Invalid, Synced
from chronicle.core.policy import ACKED
from chronicle.core.settlement import Settlement
from chronicle.errors import Ask, DeadLetter, Drop, Retry
from chronicle.telemetry.consumer_spans import ConsumerSpans, attributes_of, consumer_spans, error_type
from support.workers import collect, working

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
HEADERS: Final = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=opaque", "x-number": 7}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """A provider for this test; the real one can be set only once in a process."""
    made = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made)
    return made


@pytest.fixture
def exporter(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def delivery(**changes: Any) -> Delivery:
    facts: dict[str, Any] = {
        "queue": "cus.12.deliver",
        "transport": "rabbitmq",
        "origin": {"exchange": "org.12", "routing_key": "register.forests", "delivery_tag": 7},
        "envelope": Envelope(HEADERS, {"message_id": "m-1", "correlation_id": "c-1"}),
    }
    return Delivery(b"{}", **(facts | changes))


def spans_of(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def handled(syncer: Any, *batch: Delivery) -> list[Any]:
    with working(syncer, 2) as (workers, mailbox):
        workers.submit(batch)
        return [settlement.outcome for settlement in collect(mailbox, len(batch))]


def test_the_span_is_the_child_of_the_messages_context(exporter: InMemorySpanExporter) -> None:
    assert handled(lambda message: True, delivery()) == [Synced()]
    (span,) = exporter.get_finished_spans()
    assert span.name == "process cus.12.deliver"
    assert span.kind is trace.SpanKind.CONSUMER
    assert span.context is not None
    assert span.parent is not None
    assert (format(span.context.trace_id, "032x"), format(span.parent.span_id, "016x")) == (TRACE, SPAN)
    assert span.parent.is_remote
    assert span.context.trace_state.get("vendor") == "opaque"
    assert [format(link.context.span_id, "016x") for link in span.links] == [SPAN]
    assert span.status.status_code is trace.StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "org.12:register.forests:cus.12.deliver",
        "messaging.destination.template": "cus.12.deliver",
        "messaging.rabbitmq.destination.routing_key": "register.forests",
        "messaging.rabbitmq.message.delivery_tag": 7,
        "messaging.message.id": "m-1",
        "messaging.message.conversation_id": "c-1",
        "messaging.message.body.size": 2,
        "chronicle.attempts": 1,
        "chronicle.verdict": "ack",
    }


def test_a_message_without_a_context_begins_a_trace(exporter: InMemorySpanExporter) -> None:
    handled(lambda message: True, delivery(envelope=Envelope({"traceparent": "forged"})))
    (span,) = exporter.get_finished_spans()
    assert (span.parent, span.links) == (None, ())


def test_it_is_current_for_a_plain_syncer(exporter: InMemorySpanExporter) -> None:
    """So an instrumented client continues the trace."""
    sent: list[dict[str, str]] = []

    def sync(message: bytes) -> bool:
        sent.append({})
        propagate.inject(sent[-1])
        return True

    handled(sync, delivery())
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert sent == [
        {"traceparent": f"00-{TRACE}-{span.context.span_id:016x}-01", "tracestate": "vendor=opaque"}
    ]
    assert not trace.get_current_span().get_span_context().is_valid


def test_it_is_current_for_an_async_syncer_its_tasks_and_threads(exporter: InMemorySpanExporter) -> None:
    inside: list[tuple[bytes, int]] = []

    async def sync(message: bytes) -> bool:
        def look() -> None:
            inside.append((message, trace.get_current_span().get_span_context().span_id))

        async def look_async() -> None:
            await asyncio.sleep(0)
            look()

        await asyncio.gather(look_async(), asyncio.to_thread(look))
        look()
        return True

    batch = [Delivery(b"%d" % n, queue=f"q{n}", transport="local") for n in range(5)]
    handled(sync, *batch)
    spans = spans_of(exporter)
    assert len(spans) == 5
    for number in range(5):
        context = spans[f"process q{number}"].context
        assert context is not None
        assert inside.count((b"%d" % number, context.span_id)) == 3


def test_D_21_a_failure_is_described_by_its_masked_reason(exporter: InMemorySpanExporter) -> None:
    """And not by an event with the exception, which would quote the message."""

    def sync(message: bytes) -> bool:
        raise ValueError(message.decode())

    handled(sync, delivery(queue="q", origin={}))
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "the syncer raised ValueError: ‹withheld›"
    assert (span.attributes or {})["error.type"] == "fatal"
    assert (span.attributes or {})["chronicle.verdict"] == "leave"
    assert span.events == ()


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Synced(), ""),
        (Failed(), "failed"),
        (Invalid("not JSON"), "invalid"),
        (Exhausted(3, 2), "exhausted"),
        (Fatal("boom"), "fatal"),
        (Asked(Retry("later"), "later"), "retry"),
        (Asked(DeadLetter("no"), "no"), "dead_letter"),
        (Asked(Drop("meant"), "meant"), ""),
        (Asked(Ask("odd"), "odd"), "failed"),
        (Interrupted(), ""),
    ],
)
def test_the_type_of_an_error_is_one_of_few_words(outcome: Any, error: str) -> None:
    """The convention asks for few values, and for their list: docs/running.md."""
    assert error_type(outcome) == error


def test_what_was_taken_back_before_it_began_has_no_span(exporter: InMemorySpanExporter) -> None:
    lease = Lease()
    lease.end()
    handled(lambda message: True, delivery(lease=lease))
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("origin", "queue", "name"),
    [
        ({"exchange": "", "routing_key": "q", "delivery_tag": 1}, "q", "q"),
        ({"exchange": "e", "routing_key": "q", "delivery_tag": 1}, "q", "e:q"),
        ({"exchange": "e", "routing_key": "", "delivery_tag": 1}, "q", "e:q"),
        ({"exchange": "e", "routing_key": "k\r\n", "delivery_tag": 1}, "q", "e:k\\r\\n:q"),
        ({"exchange": "e", "routing_key": "a@b.org", "delivery_tag": 1}, "q", "e:‹email›:q"),
    ],
)
def test_the_destination_on_rabbitmq(origin: dict[str, Any], queue: str, name: str) -> None:
    attributes = attributes_of(delivery(origin=origin, queue=queue))
    assert attributes["messaging.destination.name"] == name


def test_D_21_of_a_kafka_record_place_and_no_key() -> None:
    record = delivery(
        transport="kafka",
        queue="orders",
        origin={"topic": "orders", "partition": 3, "offset": 42, "key": b"jane@example.org"},
        envelope=Envelope({}, {"key": "jane@example.org", "tombstone": True}),
    )
    attributes = attributes_of(record)
    assert attributes["messaging.destination.partition.id"] == "3"
    assert attributes["messaging.kafka.offset"] == 42
    assert attributes["messaging.kafka.message.tombstone"] is True
    assert "jane" not in str(attributes)


def test_D_21_ids_that_may_be_personal_are_masked() -> None:
    envelope = Envelope({}, {"message_id": "jane1@example.org", "correlation_id": "Jane Doe"})
    attributes = attributes_of(delivery(envelope=envelope))
    assert attributes["messaging.message.id"] == "‹email›"
    assert attributes["messaging.message.conversation_id"] == "‹withheld›"


def test_the_id_of_an_entry_is_the_messages_id() -> None:
    entry = delivery(origin={"stream": "s", "id": "1-0"}, envelope=Envelope())
    assert attributes_of(entry)["messaging.message.id"] == "1-0"


@pytest.mark.parametrize("at", ["on_start", "on_end"])
def test_trouble_with_spans_is_no_messages_trouble(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def broken(*args: object, **more: object) -> None:
        raise OSError("the collector is away")

    processor = SimpleSpanProcessor(InMemorySpanExporter())
    monkeypatch.setattr(processor, at, broken)
    provider.add_span_processor(processor)
    with caplog.at_level(logging.WARNING):
        assert handled(lambda message: True, delivery(), delivery()) == [Synced(), Synced()]
    assert [record.getMessage() for record in caplog.records] == [
        "a message has no span, and others may have none: OSError"
    ]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_context_that_is_current_anyway_is_linked(exporter: InMemorySpanExporter) -> None:
    """As the convention asks, where messages are handled within another span."""
    spans = ConsumerSpans()
    with trace.get_tracer("outer").start_as_current_span("outer") as outer:
        begun = spans.begin(delivery())
        assert begun is not None
        begun.span.end()
        spans._context.detach(begun.token)
    linked = [link.context.span_id for link in spans_of(exporter)["process cus.12.deliver"].links]
    assert linked == [int(SPAN, 16), outer.get_span_context().span_id]


def test_without_a_provider_and_without_propagation_there_are_no_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some clients import OpenTelemetry on the chance that it is used."""
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.delitem(sys.modules, "opentelemetry.propagate")
    assert consumer_spans() is None


def test_with_a_provider_there_are(provider: TracerProvider) -> None:
    assert consumer_spans() is not None


def test_where_nobody_uses_it_it_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from chronicle.testing import run_syncer\n"
        "assert run_syncer(lambda message: True, [{}], schema='json').ok\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "assert 'chronicle.workers.traced_handler' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_action_ids_of_spans_fit(exporter: InMemorySpanExporter) -> None:
    """A body may contain a number of thousands of digits."""
    spans = ConsumerSpans()
    begun = spans.begin(delivery())
    settlement = Settlement(delivery(), Synced(), ACKED, action_id=10**400)
    assert spans.end(begun, settlement) is settlement
    (span,) = exporter.get_finished_spans()
    assert (span.attributes or {})["chronicle.action_id"] == "a number of 1329 bits"
