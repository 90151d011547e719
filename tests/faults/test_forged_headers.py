"""Nothing that a stranger writes into a header holds up other messages, loses one, or crashes the broker.

A stranger may publish to one exchange and do nothing else. Every message here but the good ones has a body
that is no JSON, so that it is tried twice and then dead-lettered; its headers are made to prevent that.
RB11, RB12, Z16.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from chronicle.core.queues import dead_letter_queue
from integration.test_rabbitmq_retry_loop import make_loop
from support import raw_amqp, samples
from support.fixtures import Broker, StartChronicle
from support.forgery import forged
from support.process import ChronicleProcess
from support.proxy import Proxy
from support.retrying import options, prepare
from support.stage import PATIENCE, Stage, counted, stopped
from support.waiting import wait_for

GOOD: Final = samples.body("action-plain.json")
NUMBER: Final = 100
BROKEN: Final = raw_amqp.short(b"x-death") + b"A" + raw_amqp.long(b"b\x01")
SLOTS: Final = 2  # the default prefetch


@pytest.fixture(params=["classic", "quorum"])
def stage(request: pytest.FixtureRequest, rabbit: Broker, chronicle: StartChronicle, tmp_path: Path) -> Stage:
    return Stage(rabbit, chronicle, tmp_path, quorum=request.param == "quorum")


def good(number: int) -> bytes:
    return GOOD.replace(b"1001", b"%d" % (5000 + number))


def publish_poison(stage: Stage, queue: str, fail: str) -> list[bytes]:
    """One message per forgery, the good ones behind them; the bodies of the bad ones."""
    bodies = []
    for name, entries in forged(queue, fail).items():
        bodies.append(f"bad: {name}".encode())
        raw_amqp.publish(stage.queues, queue, bodies[-1], entries)
    stage.queues.publish(queue, *map(good, range(NUMBER)))
    return bodies


def wait_for_good(stage: Stage) -> None:
    """Every good message is handled, and none twice."""
    expected = Counter(range(5000, 5000 + NUMBER))

    def handled() -> Counter[int]:
        return Counter(call["message"]["actionId"] for call in stage.calls())

    wait_for(lambda: handled().total() >= NUMBER, PATIENCE, "all good messages", every=0.1)
    assert handled() == expected


def finish(process: ChronicleProcess, code: int) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == code, process.stderr
    assert stopped(process)["reconnects"] == 0


def found(stage: Stage, bodies: list[bytes], *queues: str) -> Counter[bytes]:
    """Everything that is in these queues in the end; each body at least once."""
    taken: Counter[bytes] = Counter()

    def all_there() -> bool:
        for queue in queues:
            taken.update(fetched.body for fetched in stage.queues.get_all(queue))
        return set(bodies) <= set(taken)

    try:
        wait_for(all_there, PATIENCE, "every message", every=0.2)
    except AssertionError:
        pytest.fail(f"lost: {sorted(set(bodies) - set(taken))}")
    return taken


def test_a_message_nobody_can_move_does_not_hold_a_slot(stage: Stage) -> None:
    """As many as the prefetch, and more: they are put aside loudly, and go back when the process ends."""
    for number in range(3 * SLOTS + 1):
        raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % number, BROKEN)
    stage.publish(*map(good, range(NUMBER)))
    process = stage.start("yes")
    wait_for_good(stage)
    wait_for(lambda: len(process.lines("message.put_aside")) == 7, PATIENCE, "all put aside")
    finish(process, 4)
    (line, *_) = process.lines("message.put_aside")
    assert line["level"] == "error"
    assert "its x-death header" in line["reason"]
    assert "is gone" in line["reason"]
    assert counted(process) == {"received": 114, "ack": 100, "nack": 7, "requeued": 7}
    assert (stopped(process)["put_aside"], stopped(process)["unfinished"]) == (7, 7)
    assert sorted(left.body for left in stage.left(7)) == [b"bad %d" % number for number in range(7)]


@pytest.mark.parametrize("way", ["auto", "broker"])
def test_a_message_the_broker_cannot_move_is_moved_by_us(stage: Stage, way: str) -> None:
    """To the queue's own dead letters, confirmed, without the header that would break the broker.

    Also where all others are left to the broker (D-22): then a connection is opened for them.
    """
    dead = stage.queues.declare(dead_letter_queue(stage.queue))
    for number in range(3 * SLOTS + 1):
        raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % number, BROKEN)
    stage.publish(*map(good, range(NUMBER)))
    process = stage.consume("yes", "--dead-letters", way)
    assert process.returncode == 0, process.stderr
    wait_for_good(stage)
    assert counted(process) == {
        "received": 114, "ack": 100, "nack": 14, "requeued": 7, "dead_lettered": 7,
    }  # fmt: skip
    letters = stage.queues.get_all(dead)
    assert sorted(letter.body for letter in letters) == [b"bad %d" % number for number in range(7)]
    assert all("x-death" not in letter.headers for letter in letters)
    assert all(letter.headers["x-chronicle-queue"] == stage.queue for letter in letters)
    assert "not JSON" in letters[0].headers["x-chronicle-reason"]
    assert stage.queues.depth(stage.queue) == 0


def letters(stage: Stage, dead: str, number: int) -> None:
    wait_for(lambda: stage.queues.depth(dead) == number, PATIENCE, f"{number} dead letters")


def test_the_connection_that_moves_may_end(rabbit: Broker, stage: Stage) -> None:
    """RB7: nothing was under way, so nobody notices but the next such message, which opens another."""
    dead = stage.queues.declare(dead_letter_queue(stage.queue))
    process = stage.start("yes", "--dead-letters", "broker", "--tag", stage.queue)
    for number in range(3):
        raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % number, BROKEN)
        letters(stage, dead, number + 1)
        listed = rabbit.node.ctl("list_connections", "--silent", "pid", "client_properties").splitlines()
        (mover,) = [line.split("\t")[0] for line in listed if f"{stage.queue} mover" in line]
        rabbit.node.ctl("close_connection", mover, "a test")
    finish(process, 0)
    assert not process.lines("message.put_aside")


def test_a_connection_that_cannot_be_made_is_tried_again(stage: Stage) -> None:
    """What waits for it is put aside, and what comes later is moved; the run goes on all the while."""
    dead = stage.queues.declare(dead_letter_queue(stage.queue))
    with Proxy(stage.url) as proxy:
        env = {"CHRONICLE_URL": proxy.url_for(stage.url)}
        process = stage.start("yes", "--dead-letters", "broker", "--on-invalid", "dead-letter", env=env)
        process.wait_for_line("consumer.ready", PATIENCE)
        proxy.refuse()
        for number in range(SLOTS):
            raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % number, BROKEN)
        wait_for(lambda: len(process.lines("message.put_aside")) == SLOTS, PATIENCE, "both put aside")
        proxy.accept()
        raw_amqp.publish(stage.queues, stage.queue, b"bad later", BROKEN)
        letters(stage, dead, 1)
        finish(process, 4)
    assert [letter.body for letter in stage.queues.get_all(dead)] == [b"bad later"]
    assert len(stage.left(SLOTS)) == SLOTS


@pytest.mark.parametrize("has_dlq", [False, True], ids=["no dlq", "dlq"])
def test_whatever_the_headers_say_the_rest_goes_on(stage: Stage, has_dlq: bool) -> None:
    """Every forgery at once, where the broker dead-letters: none is lost, none is tried for ever."""
    dlq = [stage.queues.declare(dead_letter_queue(stage.queue))] if has_dlq else []
    bodies = publish_poison(stage, stage.queue, stage.dead)
    process = stage.consume("yes")
    wait_for_good(stage)
    aside = stopped(process)["put_aside"]
    assert process.returncode == (4 if aside else 0)
    assert counted(process)["received"] == NUMBER + 2 * len(bodies)
    everything = found(stage, bodies, stage.queue, stage.dead, *dlq)
    assert everything == Counter(bodies)
    assert aside < len(bodies) / 2
    if has_dlq:
        assert (
            aside == 2
        )  # their headers fill a frame: nobody can send them, and the broker might delete them


def test_with_counted_retries(stage: Stage) -> None:
    """The courier moves them, first to a retry queue, without what would break the broker there."""
    dlq = prepare(stage.queues, stage.queue)
    bodies = publish_poison(stage, stage.queue, stage.dead)
    process = stage.start("yes", *options(2), "--on-invalid", "dead-letter")
    wait_for_good(stage)
    wait_for(lambda: stage.queues.depth(stage.queue) == 0, PATIENCE, "an empty queue")
    finish(process, 4)
    assert stopped(process)["put_aside"] == 2
    assert found(stage, bodies, stage.queue, stage.dead, dlq) == Counter(bodies)


@pytest.mark.parametrize("forgery", ["a broken x-death that is not decoded", "a loop that is not decoded"])
def test_a_retry_does_not_trust_what_cannot_be_decoded(stage: Stage, forgery: str) -> None:
    """RB12: a wait ends by expiry, and there a forged loop makes the broker delete the message."""
    dlq = prepare(stage.queues, stage.queue)
    raw_amqp.publish(stage.queues, stage.queue, GOOD, forged(stage.queue, stage.dead)[forgery])
    process = stage.start("no", *options(2))
    wait_for(lambda: len(stage.calls()) == 2, PATIENCE, "the second try")
    wait_for(lambda: stage.queues.depth(dlq) == 1, PATIENCE, "the dead letter")
    finish(process, 0)


@pytest.mark.parametrize("quorum", [False, True], ids=["classic", "quorum"])
def test_inside_the_loop_of_proca(
    rabbit: Broker, chronicle: StartChronicle, tmp_path: Path, quorum: bool
) -> None:
    """The fail queue survives them too: what would crash it when the wait is over is never rejected."""
    stage = Stage(rabbit, chronicle, tmp_path)
    loop = make_loop(stage.queues, quorum=quorum)
    bodies = publish_poison(stage, loop.queue, loop.fail)
    process = stage.start("yes", queue=loop.queue)
    wait_for_good(stage)
    wait_for(lambda: len(process.lines("message.put_aside")) >= 10, PATIENCE, "those that nobody can move")
    finish(process, 4)
    assert set(found(stage, bodies, loop.queue, loop.fail)) == set(bodies)


def test_a_user_that_may_only_read(rabbit: Broker, stage: Stage) -> None:
    """The documented permissions: nothing can be moved by us, and nothing else waits for that."""
    stage.queues.declare(dead_letter_queue(stage.queue))
    user = stage.queue.rpartition(".")[2]
    rabbit.node.api.add_user(user, "secret")
    rabbit.node.api.set_permissions(user, "^$", "^$", f"^{stage.queue}$".replace(".", r"\."))
    for number in range(3 * SLOTS):
        raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % number, BROKEN)
    stage.publish(*map(good, range(NUMBER)))
    url = rabbit.url.replace("guest:guest", f"{user}:secret")
    process = stage.consume("yes", env={"CHRONICLE_URL": url})
    assert process.returncode == 4, process.stderr
    wait_for_good(stage)
    (line, *_) = process.lines("message.put_aside")
    assert "may not publish" in line["reason"]
    assert stopped(process)["reconnects"] == 0
    assert len(stage.left(3 * SLOTS)) == 3 * SLOTS


def test_many_more_than_the_prefetch(stage: Stage) -> None:
    """There is no number of them that stops the rest, and no more consumers than the prefetch."""
    number = 30 * SLOTS
    for at in range(number):
        raw_amqp.publish(stage.queues, stage.queue, b"bad %d" % at, BROKEN)
    stage.publish(*map(good, range(NUMBER)))
    process = stage.start("yes", "--on-invalid", "dead-letter")
    wait_for_good(stage)
    if "classic" in stage.queue:  # a quorum queue counts a cancelled one until all it was sent is settled
        assert stage.queues.consumers(stage.queue) <= SLOTS
    finish(process, 4)
    assert stopped(process)["put_aside"] == number
    assert len(stage.left(number)) == number
