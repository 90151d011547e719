"""Log lines: what they say, what they never say, and that they cannot hurt."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chronicle.core.delivery import Delivery, Envelope
from chronicle.core.notice import Notice
from chronicle.core.outcome import (
    Action,
    Asked,
    Exhausted,
    Failed,
    Fatal,
    Interrupted,
    Invalid,
    Outcome,
    Synced,
    Verdict,
)
from chronicle.core.policy import ACKED
from chronicle.core.settlement import Fate, Settlement
from chronicle.errors import Drop
from chronicle.telemetry import events
from chronicle.telemetry.counters import Counters
from chronicle.telemetry.formats import JsonLog, PrettyLog, pretty, summary
from chronicle.telemetry.logging_bridge import LoggingBridge
from chronicle.telemetry.redaction import KNOWN
from chronicle.telemetry.safe_stream import SafeStream
from chronicle_cli.log_levels import LogLevels
from chronicle_cli.output import configure_logging, make_observer
from chronicle_cli.settings import LogFormat, Output

ALWAYS = {"trigger": "my_crm:sync", "connector": "broker.test:5672/"}
INJECTION = 'x\r\n\x1b[31m{"level":"critical"}\u202e'
NOW = 1_772_446_272.125


def delivery(**changes: Any) -> Delivery:
    facts: dict[str, Any] = {
        "queue": "cus.12.deliver",
        "transport": "rabbitmq",
        "origin": {"exchange": "org.12.deliver", "routing_key": "register.forests", "delivery_tag": 7},
    }
    return Delivery(b'{"canary": "BODYCANARY"}', **(facts | changes))


def settlement(
    action: Action = Action.ACK, outcome: Outcome | None = None, *, fate: Fate = Fate.DONE, **changes: Any
) -> Settlement:
    if action is Action.ACK and outcome is None:
        return Settlement(delivery(), Synced(), ACKED, 0.0125, 1001, fate=fate, **changes)
    verdict = Verdict(action, "the syncer returned False")
    return Settlement(delivery(), outcome or Failed(), verdict, 0.0125, 1001, fate=fate, **changes)


def json_lines(level: int = logging.INFO, **options: Any) -> tuple[JsonLog, io.StringIO]:
    stream = io.StringIO()
    return JsonLog(SafeStream(stream), level, ALWAYS, clock=lambda: NOW, **options), stream


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_r_000_44_46_a_line_per_delivery_with_its_facts() -> None:
    lines, stream = json_lines()
    lines.settled([settlement()])
    assert read(stream) == [
        {
            "ts": "2026-03-02T10:11:12.125Z",
            "level": "info",
            "event": "message.acked",
            "trigger": "my_crm:sync",
            "connector": "broker.test:5672/",
            "queue": "cus.12.deliver",
            "delivery_tag": 7,
            "exchange": "org.12.deliver",
            "routing_key": "register.forests",
            "action_id": 1001,
            "size": 24,
            "redelivered": False,
            "acked": True,
            "latency_ms": 12.5,
        }
    ]


@pytest.mark.parametrize(
    ("made", "name", "level"),
    [
        (settlement(), "message.acked", "info"),
        (settlement(notes=("personal data left sealed",)), "message.acked", "info"),
        (settlement(Action.ACK, Failed()), "message.acked", "warning"),
        (settlement(Action.REQUEUE), "message.requeued", "warning"),
        (settlement(Action.DEAD_LETTER, Invalid("not JSON")), "message.dead_lettered", "error"),
        (settlement(Action.DROP, Exhausted(6, 5)), "message.dropped", "error"),
        (settlement(Action.DROP, Failed()), "message.dropped", "error"),  # nobody keeps it
        (settlement(Action.DROP, Asked(Drop("a test"), "a test")), "message.dropped", "info"),
        (settlement(Action.DEAD_LETTER, Asked(Drop("a test"), "a test")), "message.dead_lettered", "error"),
        (settlement(Action.LEAVE, Interrupted(), fate=Fate.OPEN), "message.left", "warning"),
        (settlement(Action.LEAVE, Fatal("raised")), "message.left", "warning"),
        (settlement(fate=Fate.STALE), "message.stale", "warning"),
        (settlement(fate=Fate.FAILED, error="channel closed"), "message.settle_failed", "warning"),
    ],
)
def test_style_8_one_line_per_verdict_named_after_what_became_of_the_message(
    made: Settlement, name: str, level: str
) -> None:
    lines, stream = json_lines()
    lines.settled([made])
    (line,) = read(stream)
    assert (line["event"], line["level"]) == (name, level)
    assert line["acked"] is (name == "message.acked")
    assert ("attempts" in line) is (made.outcome != Synced() or made.fate is not Fate.DONE)


def test_d_3_a_dropped_message_is_named_at_error_level() -> None:
    lines, stream = json_lines(logging.ERROR)
    lines.settled([settlement(), settlement(Action.DROP), settlement(Action.REQUEUE)])
    (line,) = read(stream)
    assert (line["event"], line["action_id"], line["delivery_tag"]) == ("message.dropped", 1001, 7)


@pytest.mark.parametrize(("level", "count"), [(logging.DEBUG, 3), (logging.INFO, 3), (logging.WARNING, 2)])
def test_level_decides_what_is_written(level: int, count: int) -> None:
    lines, stream = json_lines(level)
    lines.settled([settlement(), settlement(Action.REQUEUE), settlement(Action.DROP)])
    assert len(read(stream)) == count
    lines.event(events.LOST, logging.DEBUG, "gone")
    assert len(read(stream)) == count + (level == logging.DEBUG)


def canaries() -> Settlement:
    envelope = Envelope(
        {"h": "HEADERCANARY", "x-death": "FORGEDCANARY"}, {"message_id": "PROPCANARY"}, "FAULTCANARY"
    )
    origin = {
        "routing_key": INJECTION + "amqp://u:SECRETCANARY@h",
        "exchange": INJECTION,
        "key": b"KEYCANARY",
        "delivery_tag": 2**70,
    }
    given = delivery(queue=INJECTION + "Q" * 9000, origin=origin, envelope=envelope, redelivered=True)
    verdict = Verdict(Action.DEAD_LETTER, f"password=SECRETCANARY {INJECTION} \ud800 SECRETCANARY2")
    made = Settlement(given, Failed("OUTCOMECANARY"), verdict, 0.1, 10**6000, (INJECTION,), fate=Fate.DONE)
    made.error = "redis://:SECRETCANARY@h " + INJECTION
    return made


@pytest.mark.parametrize("attempts", [2**64 - 1, 10**600])
def test_z16_forged_attempts_do_not_end_the_run(attempts: int) -> None:
    """A line that raised would end the process after the message had gone back: a crash for every restart."""
    lines, stream = json_lines()
    forged = settlement(Action.REQUEUE)
    forged.delivery = delivery(envelope=Envelope({"x-chronicle-attempts": attempts}))
    lines.settled([forged])
    assert "bits" in read(stream)[0]["attempts"]


def both() -> Iterator[tuple[Any, io.StringIO]]:
    stream = io.StringIO()
    yield JsonLog(SafeStream(stream), logging.DEBUG, ALWAYS), stream
    for color in (False, True):
        stream = io.StringIO()
        yield PrettyLog(SafeStream(stream), logging.DEBUG, color=color), stream


def test_z4_z5_z10_canaries_in_every_field() -> None:
    KNOWN.add("SECRETCANARY2")
    for observer, stream in both():
        observer.settled([canaries()])
        observer.event("log", logging.ERROR, INJECTION + " token=SECRETCANARY SECRETCANARY2",
                       url="amqp://u:SECRETCANARY@h", trace="File 1\n  pwd=SECRETCANARY\x1b[2J\n", n=10**6000,
                       inner=[INJECTION], odd=object())  # fmt: skip
        written = stream.getvalue()
        assert "CANARY" not in written
        assert "\u202e" not in written
        assert "\r" not in written
        assert "\x1b[31m{" not in written
        assert "\x1b[2J" not in written
        assert len(written) < 8_000
        if isinstance(observer, JsonLog):
            assert [line["event"] for line in read(stream)] == ["message.dead_lettered", "log"]
        else:
            assert len(written.splitlines()) == 4


class Deaf(io.StringIO):
    """A stream nobody can write to."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_stream_that_cannot_be_written_to_costs_lines_and_nothing_else() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Deaf(), closed):
        for observer in (
            JsonLog(SafeStream(stream), logging.INFO, ALWAYS),
            PrettyLog(SafeStream(stream), logging.INFO, color=False),
        ):
            observer.settled([settlement(), settlement()])
            observer.event(events.LOST, logging.WARNING, "gone")
            observer.close(Counters())
            assert observer.sink.dropped >= 3


def test_a_broken_pipe_costs_lines_and_nothing_else() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        lines = JsonLog(SafeStream(stream), logging.INFO, ALWAYS)
        lines.settled([settlement()] * 3)
        assert lines.sink.dropped == 3


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as stream:
        lines = JsonLog(SafeStream(stream), logging.INFO, ALWAYS)
        lines.settled([settlement()] * 3)
        assert lines.sink.dropped == 3


def test_pretty_lines_are_short_and_end_in_the_final_numbers() -> None:
    stream = io.StringIO()
    lines = PrettyLog(SafeStream(stream), logging.INFO, color=False, clock=lambda: NOW)
    lines.settled([settlement(), settlement(Action.DEAD_LETTER)])
    lines.event(events.FATAL, logging.CRITICAL, "the syncer raised", trace="  File 1\nValueError")
    counters = Counters()
    counters.settled(settlement(Action.DEAD_LETTER))
    lines.close(counters)
    acked, dead, fatal, *rest = stream.getvalue().splitlines()
    assert acked[8:] == " info     acked  action_id=1001 routing_key=register.forests latency_ms=12.5"
    assert " error    dead-lettered: the syncer returned False  action_id=1001" in dead
    assert fatal.endswith("critical the syncer raised")
    assert rest[:2] == ["  │   File 1", "  │ ValueError"]
    assert "\n".join(rest[2:]) + "\n" == summary(counters, 0.0)


def test_a_remedy_is_the_last_row_below_its_line() -> None:
    line = pretty(0.0, logging.CRITICAL, "too slow", {"trace": "a.py:1", "remedy": "hurry"}, color=False)
    assert [row.strip() for row in line.splitlines()[1:]] == ["│ a.py:1", "remedy: hurry"]


def test_r_004_37_the_summary_has_the_final_counters() -> None:
    counters = Counters()
    counters.received = 1234
    counters.ack = 1200
    table = summary(counters, 10)
    assert [row.split() for row in table.splitlines()] == [
        ["received", "1,234"], ["ack", "1,200"], ["nack", "0"], ["per", "second", "120.0"], ["time", "10.0s"],
    ]  # fmt: skip


def test_the_summary_tells_how_often_personal_data_was_passed_on_sealed() -> None:
    counters = Counters()
    assert "sealed" not in summary(counters, 1)
    counters.settled(settlement(notes=("personal data left sealed",)))
    *_, row, _, _, last = summary(counters, 1).splitlines()
    assert row.split() == ["sealed", "1"]
    assert last == "  1 passed to the syncer with personal data left sealed, see --keys"


def test_the_summary_has_what_the_transport_noticed() -> None:
    counters = Counters()
    counters.noticed(Notice("stream.lost_trimmed", logging.ERROR, "gone", {"count": 1200}))
    table = summary(counters, 10).splitlines()
    assert "  stream lost-trimmed  1,200" in table
    assert len({len(row) for row in table}) == 1  # the numbers stand below one another


def test_the_labels_of_a_transport_are_in_every_json_line() -> None:
    """R-001: mode and stream, beside the syncer and the broker."""
    stream = io.StringIO()
    labels = {"mode": "stream", "stream": "orders"}
    lines = make_observer(
        Output(LogFormat.JSON), SafeStream(stream), "", labels | {"trigger": "my:sync", "connector": "host/0"}
    )
    lines.event(events.READY, logging.INFO, "consuming")
    lines.settled([settlement()])
    written = read(stream)
    assert len(written) == 2
    told = labels | {"trigger": "my:sync", "connector": "host/0"}
    assert all(line.items() >= told.items() for line in written)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, sys.excepthook, threading.excepthook, sys.unraisablehook
    yield
    root.handlers[:], root.level, sys.excepthook, threading.excepthook, sys.unraisablehook = before
    logging.captureWarnings(False)
    for name in ("pika", "pika.channel", "confluent_kafka", "redis"):
        logging.getLogger(name).setLevel(logging.NOTSET)


PERSONAL = "Lovelace, ada@example.org, amqp://u:SECRETCANARY@h"


def fail() -> None:
    raise ValueError(PERSONAL)


@pytest.mark.usefixtures("logging_as_before")
def test_z4_everything_python_says_by_itself_goes_the_same_way() -> None:
    lines, stream = json_lines()
    configure_logging(lines, LogLevels(), ("my_crm",))
    try:
        fail()
    except ValueError as error:
        logging.getLogger("my_crm").exception(
            "failed for %s with password=%s", "ada@example.org", "SECRETCANARY"
        )
        logging.getLogger("asyncio").exception("never retrieved\nfuture: %s", PERSONAL)
        sys.excepthook(ValueError, error, error.__traceback__)
    worker = threading.Thread(target=fail)
    worker.start()
    worker.join()
    logging.getLogger("my_crm").info("%d of %d", 1)
    logging.getLogger("pika.connection").error("many words about a lost connection")
    logging.getLogger("my_crm").debug("not shown")
    written = stream.getvalue()
    for canary in ("Lovelace", "ada@example.org", "SECRETCANARY", "many words", "not shown"):
        assert canary not in written
    found = read(stream)
    assert [line["event"] for line in found] == ["log", "log", "process.crashed", "process.crashed", "log"]
    assert found[0]["text"] == "failed for ‹email› with password=***"
    assert all("in fail" in line["trace"] for line in found[:4])


@pytest.mark.usefixtures("logging_as_before")
def test_z5_pika_never_shows_a_body_even_at_debug() -> None:
    lines, stream = json_lines(logging.DEBUG)
    configure_logging(lines, LogLevels(logging.DEBUG, (("pika", logging.DEBUG),)))
    logging.getLogger("pika.channel").debug("body=%r", b"BODYCANARY")
    logging.getLogger("pika.connection").debug("opening")
    assert [line["text"] for line in read(stream)] == ["opening"]


def test_the_bridge_carries_the_level_and_the_name() -> None:
    lines, stream = json_lines()
    record = logging.LogRecord("my_crm", logging.WARNING, __file__, 1, "slow", (), None)
    LoggingBridge(lines).emit(record)
    (line,) = read(stream)
    assert (line["level"], line["logger"], line["text"]) == ("warning", "my_crm", "slow")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("log_format", "live", "stream", "environ", "kind"),
    [
        (LogFormat.AUTO, None, io.StringIO(), {}, "JsonLog"),
        (LogFormat.AUTO, None, Terminal(), {}, "LiveView"),
        (LogFormat.AUTO, False, Terminal(), {}, "PrettyLog"),
        (LogFormat.AUTO, None, Terminal(), {"TERM": "dumb"}, "PrettyLog"),
        (LogFormat.PRETTY, None, io.StringIO(), {}, "PrettyLog"),
        (LogFormat.PRETTY, True, io.StringIO(), {}, "PrettyLog"),
        (LogFormat.JSON, None, Terminal(), {}, "JsonLog"),
        (LogFormat.JSON, True, Terminal(), {}, "JsonLog"),
    ],
)
def test_design_5_a_person_gets_the_live_view_and_a_pipe_gets_json(
    log_format: LogFormat, live: bool | None, stream: io.StringIO, environ: dict[str, str], kind: str
) -> None:
    observer = make_observer(
        Output(log_format, live=live), SafeStream(stream), "a title", {}, environ=environ
    )
    assert type(observer).__name__ == kind
