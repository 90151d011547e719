"""The trace of a message in the log: in every line about it, and in those its syncer writes (D-21, Z10)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any, Final

import pytest

import chronicle
from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.in_work import begin, end
from chronicle.core.outcome import Action, Failed, Fatal, Synced, Verdict
from chronicle.core.policy import ACKED
from chronicle.core.settlement import Fate, Settlement
from chronicle.engine import failures
from chronicle.engine.long_runs import Run, Stuck
from chronicle.engine.run_events import RunEvents
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.events import verdict_facts
from chronicle.telemetry.formats import JsonLog
from chronicle.telemetry.logging_bridge import LoggingBridge
from chronicle.telemetry.safe_stream import SafeStream
from chronicle.telemetry.trace_context import current_facts, shown_id, trace_facts
from chronicle.workers.slot import Slot
from support.running import Notebook
from support.scripted import ScriptedTransport
from support.workers import collect, working

TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UUID: Final = "6f1c0d1e-3a52-4c8e-9d55-2f1a7b0c9e11"


def traced(headers: dict[str, Any], properties: dict[str, Any] | None = None, body: bytes = b"1") -> Delivery:
    return Delivery(body, queue="q", transport="t", envelope=Envelope(headers, properties or {}))


@pytest.mark.parametrize(
    ("headers", "facts"),
    [
        ({"traceparent": TRACEPARENT, "correlation_id": "c-1"}, {"traceparent": TRACEPARENT}),
        ({"traceparent": "forged", "correlation_id": "c-1"}, {"correlation_id": "c-1"}),
        ({"correlation_id": UUID}, {"correlation_id": UUID}),
        ({"traceparent": "forged"}, {}),
        ({}, {}),
    ],
)
def test_the_traceparent_or_else_the_correlation_id(headers: dict[str, Any], facts: dict[str, str]) -> None:
    assert trace_facts(traced(headers)) == facts


@pytest.mark.parametrize(
    "text", ["c-1", UUID, UUID.replace("-", "").upper(), "order:4711/x", "01ARZ3NDEKTSV4RR"]
)
def test_D_21_an_id_is_shown(text: str) -> None:
    assert shown_id(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jane.doe1@example.org", "‹email›"),
        ("+49-170-1234567", "‹phone›"),
        ("jane.doe@example.org", "‹withheld›"),
        ("jane", "‹withheld›"),
        ("Jane Doe 7", "‹withheld›"),
        ("müller7", "‹withheld›"),
        ("7\r\n\x1b[2Jforged", "‹withheld›"),
        ("password=hunter2", "password=***"),
    ],
)
def test_D_21_what_may_be_personal_is_not(text: str, shown: str) -> None:
    assert shown_id(text) == shown


def test_Z10_an_id_is_capped() -> None:
    assert len(shown_id("c1" * 10_000)) <= 128


@pytest.mark.parametrize("outcome", [Synced(), Failed()])
@pytest.mark.parametrize("fate", list(Fate))
def test_it_is_in_the_line_of_every_verdict(outcome: Synced | Failed, fate: Fate) -> None:
    verdict = ACKED if isinstance(outcome, Synced) else Verdict(Action.REQUEUE, "no")
    made = Settlement(traced({"traceparent": TRACEPARENT}), outcome, verdict, fate=fate)
    assert verdict_facts(made)[2]["traceparent"] == TRACEPARENT


def test_it_is_in_the_line_about_what_ends_the_process() -> None:
    fatal = Settlement(traced({"correlation_id": "c-1"}), Fatal("boom"), Verdict(Action.LEAVE, "boom"))
    fatal.action_id = 7
    failure = failures.of_syncer(fatal)
    assert failure is not None
    assert failure.facts == {"action_id": 7, "correlation_id": "c-1"}


def test_nothing_is_current_outside_of_a_syncer() -> None:
    assert chronicle.current_delivery() is None
    assert current_facts() == {}


def test_a_ticket_of_another_context_ends_nothing() -> None:
    """A coroutine that is thrown away ends in whatever context does so."""
    ticket = copy_context().run(begin, traced({}), None)
    end(ticket)
    assert chronicle.current_delivery() is None


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("crm")
    bridge = LoggingBridge(JsonLog(SafeStream(stream), logging.INFO, {}))
    logger.addHandler(bridge)
    logger.propagate = False
    yield stream
    logger.removeHandler(bridge)
    logger.propagate = True


def numbered(count: int) -> list[Delivery]:
    return [traced({"correlation_id": f"c-{n}"}, body=b"%d" % n) for n in range(count)]


def told(stream: io.StringIO) -> set[tuple[str, str]]:
    lines = map(json.loads, stream.getvalue().splitlines())
    return {(line["text"], line["correlation_id"]) for line in lines}


def test_what_a_plain_syncer_logs_names_its_message(log: io.StringIO) -> None:
    def sync(message: bytes) -> bool:
        logging.getLogger("crm").warning("at %s", message.decode())
        return True

    with working(sync, 3) as (workers, mailbox):
        workers.submit(numbered(20))
        collect(mailbox, 20)
    assert told(log) == {(f"at {n}", f"c-{n}") for n in range(20)}


def test_what_an_async_syncer_and_its_tasks_and_threads_log_names_their_message(log: io.StringIO) -> None:
    """Also of a task that goes on when the next message is in work."""
    release = threading.Event()
    done: list[str] = []

    def say(what: str) -> None:
        logging.getLogger("crm").warning("%s", what)
        done.append(what)

    async def later(number: str) -> None:
        while not release.is_set():
            await asyncio.sleep(0.001)
        say(f"later {number}")

    kept = []

    async def sync(message: bytes) -> bool:
        number = message.decode()
        kept.append(asyncio.create_task(later(number)))
        await asyncio.gather(asyncio.to_thread(say, f"thread {number}"), asyncio.sleep(0.001))
        say(f"task {number}")
        if number == "9":
            release.set()
            await asyncio.gather(*kept)
        return True

    with working(sync) as (workers, mailbox):
        workers.submit(numbered(10))
        collect(mailbox, 10)
    expected = {(f"{kind} {n}", f"c-{n}") for kind in ("later", "thread", "task") for n in range(10)}
    assert told(log) == expected


@pytest.mark.parametrize("raises", [False, True])
def test_it_is_current_for_the_syncer_and_for_nobody_after_it(raises: bool) -> None:
    seen: list[Delivery | None] = []

    def sync(message: bytes, delivery: Delivery) -> bool:
        seen.append(chronicle.current_delivery())
        if raises:
            raise chronicle.Retry("again")
        return chronicle.current_delivery() is delivery

    with working(sync) as (workers, mailbox):
        batch = numbered(3)
        workers.submit(batch)
        done = collect(mailbox, 3)
    assert seen == batch
    assert all(isinstance(settlement.outcome, Synced) for settlement in done) is not raises


def test_it_is_in_the_lines_about_a_syncer_that_takes_long_and_one_that_never_ends() -> None:
    notebook = Notebook()
    message = traced({"traceparent": TRACEPARENT}, body=b'{"actionId": 7}')
    slot = Slot(lambda: iter(()))
    slot.delivery = message
    RunEvents(notebook, ScriptedTransport(), Counters(), 0.0, 0.0).slow(Run(slot, message, 0.0, 61.0))
    (slow,) = notebook.facts(events.SLOW)
    stuck = failures.of_stuck(Stuck(slot, message, 5.0))
    assert stuck is not None
    for facts in (slow, stuck.facts):
        assert (facts["action_id"], facts["traceparent"]) == (7, TRACEPARENT)
