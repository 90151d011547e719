"""`--on-failure retry:N` on real classic and quorum queues, through the command (D-2, R-003-20 to 25)."""

from __future__ import annotations

import json
import re
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from chronicle.core.queues import retry_queue_name
from support import samples
from support.fixtures import Broker, StartChronicle
from support.queues import Fetched
from support.retrying import DELAYS, options, prepare, waiting
from support.stage import PATIENCE, Stage, counted
from support.waiting import wait_for

BODY: Final = b" " + samples.body("action-plain.json") + b"\n"  # not as any encoder would write it
HEADERS: Final = {"x-campaign": "forests", "n": 7, "nested": {"list": [1, None, True]}}
PROPERTIES: Final[dict[str, Any]] = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "correlation_id": "c-1",
    "reply_to": "answers",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "action",
    "app_id": "proca",
    "priority": 3,
}


@pytest.fixture(params=[False, True], ids=["classic", "quorum"])
def quorum(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, quorum: bool) -> Stage:
    made = Stage(rabbit, chronicle, tmp_path, quorum=quorum)
    made.dead = prepare(made.queues, made.queue, quorum=quorum)
    return made


def stop(process: Any) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def test_three_tries_then_the_dead_letters(stage: Stage) -> None:
    """R-003-23, R-003-24, RB12, Z6: counted, never early; the dead letter is what came, plus its story."""
    before = int(time.time() * 1000)
    stage.publish(BODY, properties=pika.BasicProperties(headers=dict(HEADERS), delivery_mode=1, **PROPERTIES))
    process = stage.start("no", *options(3), "--tag", "crm")
    (letter,) = stage.dead_letters(1)
    stop(process)

    calls = stage.calls()
    assert [call["attempts"] for call in calls] == [1, 2, 3]
    waits = [later["at"] - earlier["at"] for earlier, later in pairwise(calls)]
    assert all(wait >= delay for wait, delay in zip(waits, DELAYS, strict=True))
    assert counted(process) == {"received": 3, "nack": 3, "retried": 2, "dead_lettered": 1}
    assert [line["attempts"] for line in process.lines("message.retried")] == [1, 2]

    assert letter.body == BODY
    assert_story(letter, stage.queue, attempts=3, since=before)
    assert {name: letter.headers[name] for name in HEADERS} == HEADERS
    assert not letter.headers.get("x-delivery-count")  # of the dead letters' own queue
    assert {name: getattr(letter.properties, name) for name in PROPERTIES} == PROPERTIES
    assert letter.properties.delivery_mode == 2
    assert stage.queues.get_all(f"{stage.queue}.dead") == []


def assert_story(letter: Fetched, queue: str, *, attempts: int, since: int) -> None:
    """R-003-20: why, where, who, when and after how many tries; six headers, whatever happened."""
    ours = {name: value for name, value in letter.headers.items() if name.startswith("x-chronicle-")}
    first, last = ours.pop("x-chronicle-first-failed-at"), ours.pop("x-chronicle-last-failed-at")
    assert since <= first <= last <= time.time() * 1000
    assert ours.pop("x-chronicle-consumer").endswith(".crm")
    assert ours == {
        "x-chronicle-reason": "the syncer returned False",
        "x-chronicle-attempts": attempts,
        "x-chronicle-queue": queue,
    }


def test_the_last_delay_repeats(stage: Stage) -> None:
    """D-2: five tries with two delays; each header is replaced, none is added."""
    stage.publish(BODY)
    process = stage.start("no", *options(5), "--tag", "crm")
    (letter,) = stage.dead_letters(1)
    stop(process)
    assert [call["attempts"] for call in stage.calls()] == [1, 2, 3, 4, 5]
    assert_story(letter, stage.queue, attempts=5, since=0)


def test_a_message_that_gets_well_is_acknowledged(stage: Stage) -> None:
    """R-003-21: the syncer sees the count."""
    stage.publish(BODY, BODY)
    process = stage.start("third_time", *options(5))
    wait_for(lambda: len(process.lines("message.acked")) == 2, PATIENCE, "two acks")
    stop(process)
    assert counted(process) == {"received": 6, "ack": 2, "nack": 4, "retried": 4}
    assert [stage.queues.depth(queue) for queue in (stage.queue, stage.dead)] == [0, 0]
    assert waiting(stage.queues, stage.queue) == 0


@pytest.mark.parametrize("after", [None, 0.2], ids=["its own step", "a step that is long enough"])
def test_asking_for_another_try_counts_like_a_failure(stage: Stage, after: float | None) -> None:
    """D-2, D-16: a syncer that raises Retry for ever has its N tries, each after a wait, and no more."""
    stage.publish(json.dumps({"after": after}).encode())
    process = stage.start("retries_forever", *options(3), "--schema", "json")
    (letter,) = stage.dead_letters(1)
    stop(process)
    calls = stage.calls()
    assert [call["attempts"] for call in calls] == [1, 2, 3]
    waits = [later["at"] - earlier["at"] for earlier, later in pairwise(calls)]
    steps = DELAYS if after is None else (DELAYS[1], DELAYS[1])
    assert all(wait >= step for wait, step in zip(waits, steps, strict=True))
    assert counted(process) == {"received": 3, "nack": 3, "retried": 2, "dead_lettered": 1}
    assert letter.headers["x-chronicle-attempts"] == 3


def test_one_try_is_no_retry(stage: Stage) -> None:
    """R-003-8: retry:1 is one attempt."""
    stage.publish(BODY)
    process = stage.start("no", *options(1))
    stage.dead_letters(1)
    stop(process)
    assert len(stage.calls()) == 1


def test_other_dead_letters_are_told_about_too(stage: Stage) -> None:
    """D-16: a syncer's own wish goes the same way, at once and with its reason."""
    stage.publish(BODY)
    process = stage.start("dead_letters", *options(5))
    (letter,) = stage.dead_letters(1)
    stop(process)
    assert letter.headers["x-chronicle-reason"].startswith("not wanted: ")
    assert "Jane" not in letter.headers["x-chronicle-reason"]
    assert letter.headers["x-chronicle-attempts"] == 1


def test_without_a_dead_letter_queue_of_ours_the_broker_moves_the_message(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, quorum: bool
) -> None:
    """R-003-24: in a foreign topology the end is a plain rejection, as ever."""
    stage = Stage(rabbit, chronicle, tmp_path, quorum=quorum)
    stage.queues.delete(prepare(stage.queues, stage.queue, quorum=quorum))
    stage.publish(BODY)
    process = stage.start("no", *options(2))
    (letter,) = stage.dead_letters(1)
    stop(process)
    assert letter.body == BODY
    assert letter.headers["x-chronicle-attempts"] == 1  # of the last copy that chronicle made
    assert letter.headers["x-death"][0]["reason"] == "rejected"
    assert len(stage.calls()) == 2


def test_a_missing_retry_queue_ends_the_start_with_the_remedy(stage: Stage) -> None:
    """D-9, D-15: what only a person can mend."""
    stage.queues.delete(retry_queue_name(stage.queue, DELAYS[1]))
    stage.publish(BODY)
    process = stage.start("no", *options(3))
    assert process.wait(PATIENCE) == 2
    assert f"there is no queue '{stage.queue}.retry.300ms'" in process.stderr
    assert f"chronicle declare --queue {stage.queue} --retry-delay 100ms,300ms --only-retry" in process.stderr
    assert stage.calls() == []


def test_the_remedy_works(stage: Stage) -> None:
    """--declare makes what retry:N needs."""
    queue = stage.queues.name("made")
    names = (queue, f"{queue}.dlq", *(retry_queue_name(queue, delay) for delay in DELAYS))
    stage.queues.made.extend(names)
    stage.queues.exchanges.append(f"{queue}.dlx")
    process = stage.start("no", *options(2), "--declare", queue=queue)
    process.wait_for_line("consumer.ready", PATIENCE)
    stage.queues.publish(queue, BODY)
    stage.dead = names[1]
    (letter,) = stage.dead_letters(1)
    stop(process)
    assert letter.headers["x-chronicle-attempts"] == 2


def test_who_may_not_publish_is_told_at_the_start(rabbit: Broker, stage: Stage) -> None:
    """D-9, Z14: reading alone is not enough for retry:N, and no message has to find that out."""
    user = stage.queues.name("user")
    rabbit.node.api.add_user(user, "secret")
    try:
        reading = f"^{re.escape(stage.queue)}$"
        rabbit.node.api.set_permissions(user, "^$", "^$", reading)
        stage.publish(BODY)
        url = stage.url.replace("guest:guest", f"{user}:secret")
        process = stage.start("no", *options(3), env={"CHRONICLE_URL": url})
        assert process.wait(PATIENCE) == 2
        assert "may not publish to the default exchange" in process.stderr
        assert stage.calls() == []

        rabbit.node.api.set_permissions(user, "^$", r"^amq\.default$", reading)
        process = stage.start("no", *options(3), env={"CHRONICLE_URL": url})
        stage.dead_letters(1)
        stop(process)
    finally:
        rabbit.node.api.delete_user(user)
