"""D-22: who keeps the dead letters of a RabbitMQ queue; and the log, the counters and `dlq` agree on it."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from chronicle.core.queues import dead_letter_queue
from chronicle.topology import QueueOptions, declare
from support import cli
from support.fixtures import Broker, StartChronicle
from support.process import ChronicleProcess
from support.proxy import Proxy
from support.stage import PATIENCE, SYNCERS, Stage, counted, stopped
from support.waiting import wait_for

BODY: Final = b'{"schema": "proca:action:2", "actionId": 7}'
REJECTED: Final = {"received": 1, "nack": 1, "rejected": 1}
MOVED: Final = {"received": 1, "nack": 1, "dead_lettered": 1}
AT_ONCE: Final = ("--on-failure", "dead-letter")
BROKER: Final = ("--dead-letters", "broker")


@pytest.fixture
def stage(rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    """A queue with a foreign dead-letter exchange, and no `QUEUE.dlq`."""
    return Stage(rabbit, chronicle, tmp_path)


@pytest.fixture(params=["classic", "quorum"])
def moved(request: pytest.FixtureRequest, rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    """A queue with `QUEUE.dlq`, and no dead-letter exchange."""
    return Stage(rabbit, chronicle, tmp_path, quorum=request.param == "quorum", moved=True)


def said(process: ChronicleProcess) -> dict[str, Any]:
    """The line about dead letters: one in a start, before the consumer is ready."""
    names = [line["event"] for line in process.lines()]
    (line,) = [line for line in process.lines() if line["event"].startswith("queue.dead_letters_")]
    assert names.index(line["event"]) < names.index("consumer.ready")
    return line


def refused(stage: Stage, *options: str, env: Mapping[str, str] | None = None) -> str:
    """What is said by a command that does not start; nothing was consumed."""
    stage.publish(BODY)
    process = stage.start("no", *options, env=env)
    assert process.wait(PATIENCE) == 2, process.stderr
    assert stage.calls() == []
    assert stage.queues.depth(stage.queue) == 1
    return process.stderr


def shown(stage: Stage, folder: Path) -> dict[int, tuple[str, int | None]]:
    """Reason and tries of every dead letter, by the action's id."""
    told = cli.run(
        "dlq", "show", "--json", "--queue", stage.queue, cwd=folder, env={"CHRONICLE_URL": stage.url}
    )
    assert told.code == 0, told.err
    letters = [json.loads(line) for line in told.out.splitlines()]
    return {letter["action_id"]: (letter["reason"], letter["attempts"]) for letter in letters}


def logged(process: ChronicleProcess, event: str) -> dict[int, tuple[str, int]]:
    return {line["action_id"]: (line["reason"], line["attempts"]) for line in process.lines(event)}


# --- by chronicle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(), ("--order", "field:actionId")], ids=["", "lanes"])
def test_what_chronicle_moves_has_the_reason_and_the_tries_of_the_log(
    moved: Stage, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """D-22: `DeadLetter(why)`, and the second of two tries; the broker alone would delete them."""
    moved.publish(BODY)
    first = moved.consume("dead_letters", *order)
    moved.publish(BODY.replace(b"7", b"8"))
    second = moved.consume("no", *order)
    assert counted(first) == MOVED
    assert counted(second) == {"received": 2, "nack": 2, "requeued": 1, "dead_lettered": 1}
    assert stopped(first)["notices"] == {}
    line = said(first)
    assert (line["event"], line["level"], line["moved_by"]) == (
        "queue.dead_letters_kept",
        "info",
        "chronicle",
    )
    assert f"chronicle moves them to the queue '{moved.dead}'" in line["text"]
    told = {**logged(first, "message.dead_lettered"), **logged(second, "message.dead_lettered")}
    assert {number: tries for number, (_, tries) in told.items()} == {7: 1, 8: 2}
    assert shown(moved, tmp_path) == told
    listed = cli.run("dlq", "list", "--queue", moved.queue, cwd=tmp_path, env={"CHRONICLE_URL": moved.url})
    for reason, _ in told.values():
        assert reason in listed.out


def test_after_declare_there_is_nothing_to_warn_of(
    rabbit: Broker, chronicle: StartChronicle, stage: Stage
) -> None:
    """D-22: the queue that was declared has its `QUEUE.dlq`, and nothing is there twice."""
    queue = rabbit.queues.name("declared")
    declare(rabbit.url, queue, QueueOptions(retry=None))
    rabbit.queues.publish(queue, BODY)
    process = stage.consume("no", *AT_ONCE, queue=queue)
    assert counted(process) == MOVED
    assert said(process)["event"] == "queue.dead_letters_kept"
    (letter,) = rabbit.queues.get_all(dead_letter_queue(queue))
    assert letter.headers["x-chronicle-reason"] == "the syncer returned False"


@pytest.mark.parametrize("trouble", ["deleted", "full"])
def test_a_queue_that_takes_no_dead_letter_any_more(moved: Stage, trouble: str) -> None:
    """RB7, D-11: it is told each time, no reconnect hands it to the broker, and a stop ends at its time."""
    with Proxy(moved.url) as proxy:
        env = {"CHRONICLE_URL": proxy.url_for(moved.url)}
        process = moved.start("no", *AT_ONCE, "--drain-timeout", "2s", "--reconnect-max", "500ms", env=env)
        process.wait_for_line("consumer.ready", PATIENCE)
        moved.queues.delete(moved.dead)
        if trouble == "full":
            moved.queues.declare(moved.dead, {"x-max-length": 1, "x-overflow": "reject-publish"})
            moved.queues.publish(moved.dead, b"there first")
        moved.publish(BODY)
        process.wait_for_line("message.copy_refused", PATIENCE)
        proxy.cut()
        wait_for(lambda: len(process.lines("consumer.ready")) == 2, PATIENCE, "the second start")
        before = len(process.lines("message.copy_refused"))
        wait_for(lambda: len(process.lines("message.copy_refused")) > before, PATIENCE, "another refusal")
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 4
    said(process)  # once: it has not changed
    assert not process.lines("message.rejected")
    (left,) = moved.left(1)
    assert left.body == BODY


def test_a_dead_letter_goes_when_its_queue_is_back(moved: Stage) -> None:
    """RB7."""
    process = moved.start("no", *AT_ONCE)
    process.wait_for_line("consumer.ready", PATIENCE)
    moved.queues.delete(moved.dead)
    moved.publish(BODY)
    process.wait_for_line("message.copy_refused", PATIENCE)
    moved.queues.declare(moved.dead)
    process.wait_for_line("message.dead_lettered", PATIENCE)
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    (letter,) = moved.dead_letters(1)
    assert letter.body == BODY


# --- by the broker --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(), ("--order", "field:actionId")], ids=["", "lanes"])
@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_what_is_left_to_the_broker_is_rejected(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, quorum: bool, order: tuple[str, ...]
) -> None:
    """D-22: a foreign exchange keeps them, and chronicle does not claim to know it."""
    stage = Stage(rabbit, chronicle, tmp_path, quorum=quorum)
    stage.publish(BODY)
    process = stage.consume("dead_letters", *order)
    assert counted(process) == REJECTED
    line = said(process)
    assert (line["event"], line["level"], line["moved_by"]) == (
        "queue.dead_letters_unknown",
        "warning",
        "broker",
    )
    assert f"there is no queue '{stage.queue}.dlq'" in line["text"]
    (letter,) = stage.dead_letters(1)
    assert "x-chronicle-reason" not in letter.headers


def test_with_the_management_api_its_fate_is_known(rabbit: Broker, stage: Stage) -> None:
    """D-22, RB8: what the broker says it keeps is dead-lettered."""
    stage.publish(BODY)
    env = {"CHRONICLE_MANAGEMENT_URL": rabbit.node.management_url}
    process = stage.consume("no", *AT_ONCE, env=env)
    assert counted(process) == MOVED
    line = said(process)
    assert (line["event"], line["moved_by"]) == ("queue.dead_letters_kept", "broker")
    assert f"in the queue '{stage.dead}'" in line["text"]
    assert len(stage.dead_letters(1)) == 1


def test_the_broker_way_opens_nothing_and_moves_nothing(moved: Stage, tmp_path: Path) -> None:
    """D-22: `broker` rejects although `QUEUE.dlq` is there; how often it was tried is not recorded."""
    moved.queues.delete(moved.queue)
    way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": moved.dead}
    moved.queues.declare(moved.queue, way, quorum="quorum" in moved.queue)
    moved.publish(BODY)
    with Proxy(moved.url) as proxy:
        process = moved.start("no", *BROKER, env={"CHRONICLE_URL": proxy.url_for(moved.url)})
        process.wait_for_line("message.rejected", PATIENCE)
        assert proxy.connections == 1
        process.signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert logged(process, "message.rejected") == {7: ("the syncer returned False", 2)}
    wait_for(lambda: moved.queues.depth(moved.dead) == 1, PATIENCE, "the dead letter")
    assert shown(moved, tmp_path) == {7: ("rejected", None)}


def restricted(rabbit: Broker, stage: Stage) -> dict[str, str]:
    """A user with the permissions of the page: it may read its queue."""
    user = stage.queue.rpartition(".")[2]
    rabbit.node.api.add_user(user, "secret")
    rabbit.node.api.set_permissions(user, "^$", "^$", f"^{stage.queue}$".replace(".", r"\."))
    return {"CHRONICLE_URL": stage.url.replace("guest:guest", f"{user}:secret")}


def test_without_the_right_to_publish_the_broker_decides(rabbit: Broker, moved: Stage) -> None:
    """D-22: `auto` says why it does not move them; the run is undisturbed."""
    env = restricted(rabbit, moved)
    moved.publish(BODY)
    process = moved.consume("no", *AT_ONCE, env=env)
    assert process.returncode == 0, process.stderr
    assert counted(process) == REJECTED
    assert stopped(process)["reconnects"] == 0
    assert "this user may not publish to the default exchange" in said(process)["text"]


# --- refused --------------------------------------------------------------------------------------------


def test_chronicle_refuses_to_start_without_the_queue(stage: Stage) -> None:
    """D-22: exit 2, with the command that makes it; and that command is enough."""
    problem = refused(stage, "--dead-letters", "chronicle")
    assert f"there is no queue '{stage.queue}.dlq', which --dead-letters chronicle needs" in problem
    remedy = f"chronicle declare --queue {stage.queue}.dlq --no-dead-letter"
    assert remedy in problem
    made = cli.run(*remedy.split()[1:], cwd=Path.cwd(), env={"CHRONICLE_URL": stage.url})
    assert made.code == 0, made.err
    assert counted(stage.consume("no", *AT_ONCE, "--dead-letters", "chronicle")) == MOVED


def test_chronicle_refuses_to_start_without_the_right_to_publish(rabbit: Broker, moved: Stage) -> None:
    """D-22: exit 2, with the exchange that the right is missing for."""
    problem = refused(moved, "--dead-letters", "chronicle", env=restricted(rabbit, moved))
    assert "may not publish to the default exchange, which moving dead letters needs" in problem
    assert "amq.default" in problem


@pytest.mark.parametrize("way", [(), BROKER], ids=["auto", "broker"])
def test_exhausted_messages_need_a_place_to_be_kept(stage: Stage, way: tuple[str, ...]) -> None:
    """D-22: in a loop, a rejected message would go round for ever."""
    problem = refused(stage, "--max-retries", "1", "--on-exhausted", "dead-letter", *way)
    assert "--on-exhausted dead-letter" in problem
    assert "remedy" in problem


def test_the_variable_of_replay_is_another(stage: Stage, tmp_path: Path) -> None:
    """CHRONICLE_DEAD_LETTERS is in a project's .env, where replay must not take it for a file."""
    (tmp_path / "one.json").write_bytes(BODY)
    env = {"CHRONICLE_DEAD_LETTERS": "broker", "REHEARSED": str(tmp_path / "calls")}
    told = cli.run("replay", "--syncer", f"{SYNCERS}:no", "one.json", cwd=tmp_path, env=env)
    assert told.code == 1, told.err
    assert not (tmp_path / "broker").exists()
    stage.publish(BODY)
    assert counted(stage.consume("no", *AT_ONCE, env={"CHRONICLE_DEAD_LETTERS": "broker"})) == REJECTED
