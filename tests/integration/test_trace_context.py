"""The trace of a message on every queue, through the real command: in lines, spans and dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from chronicle.transports.local.consumer import LocalTransport
from chronicle.transports.local.publisher import LocalPublisher
from chronicle.transports.seam import Connector, Outgoing
from support.fixtures import Broker, Kafka, StartChronicle
from support.process import ChronicleProcess
from support.redis_server import RedisServer
from support.stage import PATIENCE
from support.waiting import wait_for

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
TRACEPARENT: Final = f"00-{TRACE}-{SPAN}-01"
HEADERS: Final = {"traceparent": TRACEPARENT, "tracestate": "vendor=opaque", "correlation_id": "c-1"}
BODY: Final = b'{"actionId": 4711}'

SYNCER: Final = """
import asyncio
import json
import logging

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import chronicle


class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans", "a") as file:
            for span in spans:
                print(json.dumps(json.loads(span.to_json())), file=file)
        return SpanExportResult.SUCCESS


def look():
    logging.getLogger("crm").warning("at %s", chronicle.current_delivery().attempts)
    with trace.get_tracer("crm").start_as_current_span("request"):
        pass
    return False


class Sync:
    def __enter__(self):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(ToFile()))
        trace.set_tracer_provider(provider)

    def __exit__(self, *error):
        pass

    def __call__(self, message):
        return look()


class AsyncSync(Sync):
    async def __call__(self, message):
        await asyncio.sleep(0)
        return look()


def plain(message):
    logging.getLogger("crm").warning("at %s", chronicle.current_delivery().attempts)
    return False
"""


class Place:
    """A queue of one kind, with dead letters."""

    def __init__(
        self,
        system: str,
        url: str,
        queue: str,
        publish: Callable[[Mapping[str, str]], object],
        dead: Callable[[], list[Mapping[str, Any]]],
    ) -> None:
        self.system = system
        self.url = url
        self.queue = queue
        self.publish = publish  # with these headers
        self.dead = dead  # the headers of its dead letters


@pytest.fixture(params=["local", "rabbitmq", "redis", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make = {"local": at_local, "rabbitmq": at_rabbit, "redis": at_redis, "kafka": at_kafka}[request.param]
    return make(request, tmp_path)


def at_local(_: pytest.FixtureRequest, folder: Path) -> Place:
    url = f"local:{folder}/q.db"

    def publish(headers: Mapping[str, str]) -> None:
        with LocalPublisher(Connector(url, "q")) as publisher:
            publisher.publish([Outgoing(BODY, headers=headers)])

    def dead() -> list[Mapping[str, Any]]:
        transport = LocalTransport(Connector(url, "q.dlq"))
        transport.open(lambda: False)
        try:
            return [delivery.headers for delivery in transport.receive(10, 0)]
        finally:
            transport.close()

    return Place("local", url, "q", publish, dead)


def at_rabbit(request: pytest.FixtureRequest, _: Path) -> Place:
    rabbit: Broker = request.getfixturevalue("rabbit")
    queue = rabbit.queues.name("traced")
    kept = rabbit.queues.declare_with_dead_letters(queue)

    def publish(headers: Mapping[str, str]) -> None:
        others = {name: value for name, value in headers.items() if name != "correlation_id"}
        properties = pika.BasicProperties(
            headers=others, correlation_id=headers.get("correlation_id"), message_id="m-1", delivery_mode=2
        )
        rabbit.queues.publish(queue, BODY, properties=properties)

    def dead() -> list[Mapping[str, Any]]:
        # The broker moves it, in its own time.
        fetched = wait_for(lambda: rabbit.queues.get_all(kept), PATIENCE, f"a message in {kept}")
        return [{**one.headers, "correlation_id": one.properties.correlation_id} for one in fetched]

    return Place("rabbitmq", rabbit.url, queue, publish, dead)


def at_redis(request: pytest.FixtureRequest, _: Path) -> Place:
    server: RedisServer = request.getfixturevalue("redis_server")
    streams = server.streams
    stream = streams.make(streams.name("traced"))

    def dead() -> list[Mapping[str, Any]]:
        return [
            {_text(name): _text(value) for name, value in entry.fields.items()}
            for entry in streams.entries(f"{stream}.dlq")
        ]

    def publish(headers: Mapping[str, str]) -> None:
        streams.publish(stream, BODY, fields={name: value.encode() for name, value in headers.items()})

    return Place("redis", server.url, stream, publish, dead)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def at_kafka(request: pytest.FixtureRequest, _: Path) -> Place:
    kafka: Kafka = request.getfixturevalue("kafka")
    topics = kafka.topics
    topic = topics.make(topics.name("traced"), 1)
    kept = topics.make(f"{topic}.dlq", 1)

    def dead() -> list[Mapping[str, Any]]:
        return [{name: _text(value or b"") for name, value in one.headers} for one in topics.records(kept)]

    def publish(headers: Mapping[str, str]) -> None:
        topics.publish(topic, BODY, headers=[(name, value.encode()) for name, value in headers.items()])

    return Place("kafka", kafka.url, topic, publish, dead)


def consume(chronicle: StartChronicle, place: Place, folder: Path, syncer: str) -> ChronicleProcess:
    (folder / "traced.py").write_text(SYNCER)
    run = chronicle(
        "consume", "--url", place.url, "--queue", place.queue, "--syncer", f"traced.py:{syncer}",
        "--schema", "json", "--until-empty",
    )  # fmt: skip
    assert run.wait(PATIENCE) == 0, run.stderr
    return run


@pytest.mark.parametrize("syncer", ["Sync", "AsyncSync"])
def test_every_line_and_span_belongs_to_the_trace_and_the_dead_letter_keeps_it(
    place: Place, chronicle: StartChronicle, tmp_path: Path, syncer: str
) -> None:
    """Two tries, two spans that are children of the producer's; the copy has the headers as they were."""
    place.publish(HEADERS)
    run = consume(chronicle, place, tmp_path, syncer)

    about = [line for line in run.lines() if line["event"].startswith("message.") or line["event"] == "log"]
    assert [line["attempts"] for line in about if line["event"] != "log"] == [1, 2]
    assert {line.get("text") for line in about if line["event"] == "log"} == {"at 1", "at 2"}
    assert {line["traceparent"] for line in about} == {TRACEPARENT}
    assert {line["action_id"] for line in about} == {4711}
    assert not [line for line in about if "correlation_id" in line]

    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    ours = [span for span in spans if span["kind"] == "SpanKind.CONSUMER"]
    assert [span["name"] for span in ours] == [f"process {place.queue}"] * 2
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    assert {span["parent_id"] for span in ours} == {f"0x{SPAN}"}
    inner = [span["parent_id"] for span in spans if span["name"] == "request"]
    assert inner == [span["context"]["span_id"] for span in ours]
    assert [span["attributes"]["chronicle.verdict"] for span in ours] == ["requeue", "dead-letter"]
    assert [span["attributes"]["chronicle.attempts"] for span in ours] == [1, 2]
    for span in ours:
        assert span["attributes"]["messaging.system"] == place.system
        assert span["attributes"]["messaging.message.conversation_id"] == "c-1"
        assert span["attributes"]["error.type"] == "failed"
        assert span["status"] == {"status_code": "ERROR", "description": "the syncer returned False"}

    (kept,) = place.dead()
    assert {name: kept[name] for name in HEADERS} == HEADERS


def test_without_a_traceparent_it_is_the_correlation_id(
    place: Place, chronicle: StartChronicle, tmp_path: Path
) -> None:
    place.publish({"correlation_id": "c-1"})
    run = consume(chronicle, place, tmp_path, "plain")
    about = [line for line in run.lines() if line["event"].startswith("message.") or line["event"] == "log"]
    assert len(about) == 4
    assert {line["correlation_id"] for line in about} == {"c-1"}


def test_D_21_a_correlation_id_that_may_be_personal_is_not_printed(
    place: Place, chronicle: StartChronicle, tmp_path: Path
) -> None:
    place.publish({"correlation_id": "Jane Doe, jane7@example.org", "traceparent": "forged-jane"})
    run = consume(chronicle, place, tmp_path, "plain")
    assert b"jane" not in run.printed.lower()
    assert {line["correlation_id"] for line in run.lines("message.requeued")} == {"‹withheld›"}
