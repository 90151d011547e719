"""Every outcome of a message, through the real command, on real classic and quorum queues (D-22).

Dead letters are moved by chronicle, or rejected and kept by the broker; then nobody but the broker knows.

A row says what the syncer does and what must be true afterwards: how often it was called, the counters, the
log, the exit code, and where the message is. What is still there is byte for byte what was published.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from support import samples
from support.fixtures import Broker, StartChronicle
from support.queues import Fetched
from support.stage import PATIENCE, Stage, counted, stopped
from support.waiting import wait_for

# Blanks and a repeated key that any decoding and encoding would lose.
PLAIN: Final = b' {"schema" :\t"?",' + samples.body("action-plain.json").strip()[1:] + b"\r\n"
HEADERS: Final = {"one": 1, "word": "żółć", "raw": b"\xff\x00", "nested": {"list": [True, None, -2]}}
TRIED: Final = {"received": 2, "nack": 2, "requeued": 1, "dead_lettered": 1}
SECOND_TRY: Final = {"received": 2, "nack": 1, "requeued": 1, "ack": 1}
DEAD_AT_ONCE: Final = {"received": 1, "nack": 1, "dead_lettered": 1}


class End(StrEnum):
    """Where a message is when the run is over."""

    GONE = "gone"
    DEAD = "dead letter"
    QUEUED = "still in the queue"


@dataclass(frozen=True, slots=True)
class Row:
    """What happens, and what must come of it."""

    syncer: str
    calls: int
    counters: Mapping[str, int]
    events: tuple[str, ...]
    end: End
    options: tuple[str, ...] = ()
    body: bytes = PLAIN
    headers: Mapping[str, Any] = field(default_factory=dict)
    code: int = 0


def cycles(count: object) -> dict[str, Any]:
    """An x-death header that says so many rounds."""
    return {"x-death": [{"queue": "elsewhere", "reason": "expired", "count": count}]}


def fatal(syncer: str, *options: str) -> Row:
    """The process ends, and the message stays where it is."""
    return Row(syncer, 1, {"received": 1}, ("message.left",), End.QUEUED, options, code=1)


ROWS: Final = {
    "R-004-29 true": Row("yes", 1, {"received": 1, "ack": 1}, ("message.acked",), End.GONE),
    "R-004-30 R-004-33 false twice": Row(
        "no", 2, TRIED, ("message.requeued", "message.dead_lettered"), End.DEAD
    ),
    "R-004-33 false, then true": Row(
        "no_then_yes", 2, SECOND_TRY, ("message.requeued", "message.acked"), End.GONE
    ),
    "R-004-16 not JSON": Row(
        "yes", 0, TRIED, ("message.requeued", "message.dead_lettered"), End.DEAD, body=b'{"schema": '
    ),
    "D-4 not an object": Row(
        "yes", 0, TRIED, ("message.requeued", "message.dead_lettered"), End.DEAD, body=b"[1]"
    ),
    "R-004-18 unknown schema": Row(
        "yes",
        0,
        TRIED,
        ("message.requeued", "message.dead_lettered"),
        End.DEAD,
        body=samples.body("action-v1.json"),
    ),
    "D-4 not JSON, --on-invalid dead-letter": Row(
        "yes",
        0,
        DEAD_AT_ONCE,
        ("message.dead_lettered",),
        End.DEAD,
        ("--on-invalid", "dead-letter"),
        body=b"\xff",
    ),
    "D-1 false, --on-failure dead-letter": Row(
        "no", 1, DEAD_AT_ONCE, ("message.dead_lettered",), End.DEAD, ("--on-failure", "dead-letter")
    ),
    "D-1 false, --on-failure ack": Row(
        "no", 1, {"received": 1, "ack": 1}, ("message.acked",), End.GONE, ("--on-failure", "ack")
    ),
    "R-004-31 an exception": fatal("raises"),
    "R-004-32 None": fatal("nothing"),
    "R-004-28 X3 the number one": fatal("one"),
    "R-004-32 a word": fatal("word"),
    "X3 SystemExit": fatal("leaves"),
    "X3 SystemExit, --on-exception fail": fatal("leaves", "--on-exception", "fail"),
    "D-16 an exception, --on-exception fail": Row(
        "raises",
        2,
        TRIED,
        ("message.requeued", "message.dead_lettered"),
        End.DEAD,
        ("--on-exception", "fail"),
    ),
    "D-16 DeadLetter": Row("dead_letters", 1, DEAD_AT_ONCE, ("message.dead_lettered",), End.DEAD),
    "D-16 Drop": Row("drops", 1, {"received": 1, "dropped": 1}, ("message.dropped",), End.GONE),
    "D-16 Retry": Row("retries", 2, SECOND_TRY, ("message.requeued", "message.acked"), End.GONE),
    "R-004-14 more rounds than allowed; the body is not looked at": Row(
        "yes",
        0,
        {"received": 1, "dropped": 1},
        ("message.dropped",),
        End.GONE,
        ("--max-retries", "2"),
        body=b"{",
        headers=cycles(3),
    ),
    "D-3 as many rounds as allowed": Row(
        "yes",
        1,
        {"received": 1, "ack": 1},
        ("message.acked",),
        End.GONE,
        ("--max-retries", "2"),
        headers=cycles(2),
    ),
    "D-3 more rounds than allowed, --on-exhausted dead-letter": Row(
        "yes",
        0,
        DEAD_AT_ONCE,
        ("message.dead_lettered",),
        End.DEAD,
        ("--max-retries", "2", "--on-exhausted", "dead-letter"),
        headers=cycles(3),
    ),
}
LEVELS: Final = {
    "message.acked": "info",
    "message.requeued": "warning",
    "message.dead_lettered": "error",
    "message.rejected": "warning",
    "message.left": "warning",
    "message.dropped": "error",
}


KINDS: Final = ("classic", "quorum", "classic-rejected", "quorum-rejected")


@pytest.fixture(params=KINDS[:2])
def stage(request: pytest.FixtureRequest, rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    kind, _, rejected = request.param.partition("-")
    return Stage(rabbit, chronicle, tmp_path, quorum=kind == "quorum", moved=not rejected)


def as_the_broker_keeps(row: Row) -> Row:
    """The same where dead letters are left to the broker: they are rejected, and no more is known."""
    counters = {("rejected" if name == "dead_lettered" else name): n for name, n in row.counters.items()}
    events = tuple(event.replace("dead_lettered", "rejected") for event in row.events)
    return replace(row, counters=counters, events=events)


def cases() -> Iterator[Any]:
    """Every row where chronicle moves dead letters; those that are about one also where the broker does."""
    for kind in KINDS:
        for name, row in ROWS.items():
            if "rejected" not in kind:
                yield pytest.param(kind, row, id=f"{kind}-{name}")
            elif row.end is End.DEAD and "--on-exhausted" not in row.options:
                yield pytest.param(kind, as_the_broker_keeps(row), id=f"{kind}-{name}")


def written(headers: Mapping[str, Any]) -> pika.BasicProperties:
    """All that a producer can write on a message."""
    return pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={**HEADERS, **headers},
        delivery_mode=2,
        priority=3,
        correlation_id="correlated",
        reply_to="nobody",
        message_id="a-1",
        timestamp=1_700_000_000,
        type="kind",
        app_id="tests",
    )


@pytest.mark.parametrize(("stage", "row"), list(cases()), indirect=["stage"])
def test_every_message_ends_in_one_known_place(stage: Stage, row: Row) -> None:
    """R-004-14 to 18, R-004-28 to 33, D-1, D-3, D-4, D-16, Z6."""
    stage.publish(row.body, properties=written(row.headers))
    process = stage.consume(row.syncer, *row.options)

    assert process.returncode == row.code, process.stderr
    assert len(stage.calls()) == row.calls
    assert [call["redelivered"] for call in stage.calls()] == [False, True][: row.calls]
    assert counted(process) == row.counters
    assert stopped(process)["exit_code"] == row.code
    verdicts = [line for line in process.lines() if line["event"].startswith("message.")]
    assert tuple(line["event"] for line in verdicts) == row.events
    for line in verdicts:
        failed_ack = line["event"] == "message.acked" and "reason" in line
        on_purpose = row.syncer == "drops"
        expected = "warning" if failed_ack else "info" if on_purpose else LEVELS[line["event"]]
        assert line["level"] == expected
        assert (line["queue"], line["size"], line["routing_key"]) == (stage.queue, len(row.body), stage.queue)
    assert bool(process.lines("syncer.fatal")) == (row.code == 1)

    left = stage.left(row.end is End.QUEUED)
    dead = stage.dead_letters(row.end is End.DEAD)
    assert (len(left), len(dead)) == (row.end is End.QUEUED, row.end is End.DEAD)
    for message in (*left, *dead):
        assert_as_published(message, row)


def assert_as_published(message: Fetched, row: Row) -> None:
    """Z6: what is kept is what came; the broker adds its own headers, and chronicle those of a death."""
    assert message.body == row.body
    own = ("x-death", "x-first-death", "x-last-death", "x-delivery-count", "x-chronicle-")
    assert {n: v for n, v in message.headers.items() if not n.startswith(own)} == HEADERS
    expected = written(message.headers)
    expected.headers = dict(message.headers)
    assert message.properties == expected


def test_an_unreadable_message_is_named_by_its_size_and_reason(stage: Stage) -> None:
    """R-004-16, D-21: the log says why and never what."""
    stage.publish(b'{"contact": "Ada Lovelace"')
    process = stage.consume("yes")
    (dead,) = process.lines("message.dead_lettered")
    assert (dead["size"], dead["action_id"], dead["attempts"]) == (26, None, 2)
    assert "not JSON" in dead["reason"]
    assert "Lovelace" not in process.stderr


def test_a_message_that_is_dropped_on_purpose_is_named_and_no_error(stage: Stage) -> None:
    """D-16, D-3: whatever is not kept can be found in the log by its id."""
    stage.publish(PLAIN)
    process = stage.consume("drops")
    (dropped,) = process.lines("message.dropped")
    assert (dropped["level"], dropped["action_id"], dropped["acked"]) == ("info", 1001, False)


def test_a_retry_waits_as_long_as_it_was_told(stage: Stage) -> None:
    """D-16: Retry(after=0.2)."""
    stage.publish(PLAIN)
    stage.consume("retries")
    first, second = stage.calls()
    assert second["at"] - first["at"] >= 0.2


def test_requeue_for_ever_grows_its_delay_and_drains_at_once(stage: Stage) -> None:
    """D-1: --on-failure requeue is never a hot loop, and a stop does not wait for the delay."""
    stage.publish(PLAIN)
    process = stage.start("no", "--on-failure", "requeue")
    wait_for(lambda: len(stage.calls()) >= 3, PATIENCE, "three tries")
    tries = [call["at"] for call in stage.calls()]
    first, second = (later - earlier for earlier, later in pairwise(tries[:3]))
    assert first >= 0.9
    assert second >= 1.9

    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    tried = len(stage.calls())
    assert counted(process) == {"received": tried, "nack": tried, "requeued": tried}
    (kept,) = stage.left(1)
    assert (kept.body, kept.redelivered) == (PLAIN, True)
    assert stage.dead_letters(0) == []


def test_one_bad_message_does_not_disturb_its_neighbours(stage: Stage) -> None:
    """R-004-36: a message's failure is no failure of the system."""
    bodies = [PLAIN, b"garbage", PLAIN, samples.body("action-v1.json"), PLAIN]
    stage.publish(*bodies)
    process = stage.consume("yes", "--concurrency", "3")
    assert counted(process) == {"received": 7, "ack": 3, "nack": 4, "requeued": 2, "dead_lettered": 2}
    assert sorted(dead.body for dead in stage.dead_letters(2)) == sorted([bodies[1], bodies[3]])
