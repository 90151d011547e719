"""`chronicle dlq` on every kind of queue: look, bring back, try, export, drop."""

from __future__ import annotations

import json
import signal
import stat
import time
from collections import Counter
from pathlib import Path

import pytest

from chronicle.core.deadletters.death import REASON, REDRIVES
from chronicle.core.record import body_name
from chronicle.deadletters.reader import AHEAD
from chronicle.transports.batches import BATCH
from chronicle.transports.seam import Outgoing
from support.deadhouse import CANARY, DeadHouse, action, at_kafka, at_rabbit
from support.fixtures import StartChronicle
from support.proxy import Proxy
from support.waiting import wait_for

SYNCER = """
def odd(message):
    return message["actionId"] % 2 == 1

def never(message):
    return False

def tells(message):
    raise ValueError("no place for " + message["contact"]["email"])

def none(message):
    return None
"""


@pytest.fixture(params=["local", "classic", "quorum", "kafka"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> DeadHouse:
    """An empty queue with a place for its dead letters."""
    (tmp_path / "crm.py").write_text(SYNCER)
    if request.param == "local":
        made = DeadHouse(f"local:{tmp_path / 'q.db'}", "orders", tmp_path, "local")
        made.put(made.queue, [])
        made.put(made.dlq, [])
        return made
    if request.param == "kafka":
        kafka = request.getfixturevalue("kafka")
        return at_kafka(kafka.topics, kafka.url, tmp_path)
    return at_rabbit(request.getfixturevalue("rabbit").queues, tmp_path, request.param)


def test_list_counts_and_leaves_everything(house: DeadHouse) -> None:
    """The issue: depth, oldest, counts by reason; a look takes nothing away and keeps the order."""
    house.die(1, 2, 3, x_chronicle_last_failed_at=1772446272000)
    house.die(4, x_chronicle_reason="the body is not JSON")
    said = house.dlq_command("list", "--json")
    assert said.code == 0, said.err
    facts = json.loads(said.out)
    assert (facts["depth"], facts["looked_at"]) == (4, 4)
    assert facts["reasons"] == {"the syncer returned False": 3, "the body is not JSON": 1}
    assert facts["oldest"] == "2026-03-02T10:11:12+00:00"
    assert "3  the syncer returned False" in house.dlq_command("list").out
    sampled = house.dlq_command("list", "--limit", "2")
    assert "the oldest 2" in sampled.out
    left = house.take(house.dlq)
    # A quorum queue puts what it gets back behind what it got back before.
    assert [one.id for one in left] == ([3, 4, 1, 2] if house.kind == "quorum" else [1, 2, 3, 4])
    # What a peek does: on RabbitMQ the flag, and a quorum queue counts; elsewhere nothing.
    assert {one.redelivered for one in left} == {house.queues is not None}
    counted = {one.id: one.headers.get("x-delivery-count") for one in left}
    expected = {1: 3, 2: 3, 3: 2, 4: 2} if house.kind == "quorum" else dict.fromkeys((1, 2, 3, 4))
    assert counted == expected


def test_redrive_takes_them_back_to_where_they_came_from(house: DeadHouse) -> None:
    """Z6: the exact body; deaths off, redrives counted; other headers and the properties stay."""
    body = b"\xff\x00not json, as it came"
    headers = {
        "x-chronicle-queue": house.queue,
        "x-chronicle-reason": "r",
        "x-death": [{"count": 3}],
        "k": "v",
    }
    house.put(house.dlq, [Outgoing(body, headers, {"message_id": "m-1", "content_type": "text/x"})])
    said = house.dlq_command("redrive")
    assert (said.code, said.out) == (0, f"1 dead letter redriven, confirmed: 1 to {house.queue}\n"), said.err
    (found,) = house.take(house.queue)
    assert (found.body, dict(found.headers)) == (body, {"k": "v", REDRIVES: 1})
    assert house.ids(house.dlq) == []


def test_redrive_only_what_matches(house: DeadHouse) -> None:
    """The issue: --match on reason, id, schema, age; the others stay in their order."""
    house.die(1, 2, 3, 4)
    house.die(5, x_chronicle_reason="Timeout of the CRM")
    assert house.dlq_command("redrive", "--match", "id=2,4").code == 0
    assert house.dlq_command("redrive", "--match", "reason=timeout", "--match", "id=1").code == 0
    assert house.dlq_command("redrive", "--match", "reason=timeout").code == 0
    assert sorted(house.ids(house.queue)) == [2, 4, 5]
    assert house.ids(house.dlq) == [1, 3]
    assert house.dlq_command("redrive", "--match", "colour=red").code == 2


def test_few_of_many(house: DeadHouse) -> None:
    """Those that do not match fill a holder's window; the ones behind them are reached all the same."""
    house.die(*range(AHEAD + 200))
    said = house.dlq_command("redrive", "--match", f"id=1,{AHEAD + 199}")
    assert said.code == 0, said.err
    assert sorted(house.ids(house.queue)) == [1, AHEAD + 199]
    assert house.depth(house.dlq) == AHEAD + 198


def test_redrive_is_bounded_looks_before_it_leaps_and_can_go_elsewhere(house: DeadHouse) -> None:
    house.die(*range(10))
    dry = house.dlq_command("redrive", "--dry-run", "--limit", "4")
    assert dry.out.splitlines()[0] == f"4 dead letters would be redriven: 4 to {house.queue}"
    assert (house.depth(house.queue), house.depth(house.dlq)) == (0, 10)
    assert house.dlq_command("redrive", "--limit", "4").code == 0
    assert house.ids(house.queue) == [0, 1, 2, 3]
    house.make(f"{house.queue}.x")
    assert house.dlq_command("redrive", "--to", f"{house.queue}.x").code == 0
    assert house.ids(f"{house.queue}.x") == [4, 5, 6, 7, 8, 9]


def test_no_cycle(house: DeadHouse) -> None:
    """A redrive loop is stopped by the cap, and the message is named."""
    house.die(7)
    for _ in range(3):
        assert house.dlq_command("redrive").code == 0
        (back,) = house.take(house.queue)
        house.put(house.dlq, [Outgoing(back.body, back.headers)])
    said = house.dlq_command("redrive")
    assert said.out.splitlines()[0].startswith("0 dead letters redriven")
    assert said.code == 1
    assert "1 stays: " in said.out
    assert "action 7: redriven as often as --max-redrives allows" in said.out
    assert house.dlq_command("redrive", "--to", house.dlq).code == 2
    (left,) = house.take(house.dlq)
    assert left.headers[REDRIVES] == 3


def test_a_message_that_dies_again_waits_for_the_next_run(
    house: DeadHouse, chronicle: StartChronicle
) -> None:
    """The set present at the start: with a consumer that fails everything, each goes round once."""
    house.die(*range(300))
    consumer = chronicle(
        "consume",
        *house.where,
        "--syncer",
        "crm:never",
        "--on-failure",
        "dead-letter",
        "--brake",
        "0",
        env=house.env,
    )
    consumer.wait_for_line("consumer.ready")
    said = house.dlq_command("redrive", "--rate", "600/s")
    assert said.out.splitlines()[0] == f"300 dead letters redriven, confirmed: 300 to {house.queue}"
    wait_for(lambda: house.depth(house.dlq) == 300, 30, "all dead again")
    consumer.signal(signal.SIGTERM)
    assert consumer.wait() == 0
    # Now the broker, not the test, has written where they died.
    assert house.dlq_command("redrive", "--limit", "299").out.count(house.queue) == 1
    assert {one.headers[REDRIVES] for one in house.take(house.queue)} == {2}
    assert {one.headers[REDRIVES] for one in house.take(house.dlq)} == {1}
    assert house.dlq_command("list").out == f"{house.dlq}: 0 dead letters of {house.queue}\n"


def test_ten_thousand_with_kill_in_the_middle(house: DeadHouse, chronicle: StartChronicle) -> None:
    """None is lost; what is in both queues is no more than a few batches."""
    house.die(*range(10_000))
    # Slow enough that the middle cannot be missed.
    killed = chronicle("dlq", "redrive", *house.where, "--rate", "2000/s", env=house.env)
    wait_for(lambda: house.depth(house.queue) >= 2_000, 60, "some to be moved")
    killed.kill()
    moved = house.depth(house.queue)
    assert moved < 10_000
    again = chronicle("dlq", "redrive", *house.where, env=house.env)
    assert again.wait(120) == 0, again.stderr
    assert house.depth(house.dlq) == 0
    found = Counter(house.ids(house.queue))
    assert sorted(found) == list(range(10_000))
    assert found.total() - 10_000 <= 3 * BATCH


def test_a_lost_connection_loses_nothing(house: DeadHouse, chronicle: StartChronicle) -> None:
    """Exit 3, the count so far, and every message in one of the queues."""
    if house.queues is None:
        pytest.skip("no connection to lose, or none that any proxy can cut")
    house.die(*range(2_000))
    with Proxy(house.url) as proxy:
        run = chronicle(
            "dlq",
            "redrive",
            *house.where,
            "--rate",
            "1000/s",
            env={"CHRONICLE_URL": proxy.url_for(house.url)},
        )
        wait_for(lambda: house.depth(house.queue) >= 200, 30, "some to be moved")
        proxy.refuse()
        proxy.cut()
        assert run.wait(90) == 3
    assert "run it again" in run.stderr
    wait_for(lambda: house.depth(house.queue) + house.depth(house.dlq) >= 2_000, 30, "all to be given back")
    found = Counter(house.ids(house.queue) + house.ids(house.dlq))
    assert sorted(found) == list(range(2_000))
    assert found.total() - 2_000 <= 3 * BATCH


def test_an_interrupted_redrive_says_how_far_it_came(house: DeadHouse, chronicle: StartChronicle) -> None:
    house.die(*range(50))
    run = chronicle("dlq", "redrive", *house.where, "--rate", "20/s", env=house.env)
    wait_for(lambda: house.depth(house.queue) >= 3, 30, "some to be moved")
    run.signal(signal.SIGINT)
    assert run.wait() == 4
    moved, left = house.ids(house.queue), house.ids(house.dlq)
    assert [*moved, *left] == list(range(50))
    assert run.stdout.startswith(f"{len(moved)} dead letters redriven, confirmed")


def test_a_missing_target_costs_nothing(house: DeadHouse) -> None:
    """Nothing is removed; what can go goes. No queue is created for what nobody would consume."""
    house.die(1, x_chronicle_queue="no.such.queue")
    alone = house.dlq_command("redrive", "--also", "no.such.queue")
    assert alone.code == 2
    assert "'no.such.queue'" in alone.err
    assert house.dlq_command("redrive", "--to", "no.such.queue").code == 2
    house.die(2)
    said = house.dlq_command("redrive", "--also", "no.such.queue")
    assert said.code == 1
    assert "no.such.queue" in said.out
    assert house.ids(house.queue) == [2]
    assert house.ids(house.dlq) == [1]


def test_verify_leaves_the_failing_ones(house: DeadHouse) -> None:
    """Those that return True are done and removed, the others stay with the new reason."""
    house.die(1, 2, 3, 4, x_chronicle_reason="yesterday's reason", k="v")
    said = house.dlq_command("redrive", "--verify", "crm:odd", "--yes", "--concurrency", "2")
    assert (said.code, said.out) == (1, "2 dead letters handled and removed, 2 stay with their new reason\n")
    left = house.take(house.dlq)
    assert sorted(one.id for one in left) == [2, 4]
    assert {one.headers[REASON] for one in left} == {"the syncer returned False"}
    assert {one.headers["x-chronicle-queue"] for one in left} == {house.queue}
    assert {one.headers["k"] for one in left} == {"v"}
    assert house.depth(house.queue) == 0


def test_verify_says_that_it_is_for_real(house: DeadHouse) -> None:
    """Before it begins; and without a terminal somebody has to have said yes."""
    house.die(1, 2)
    said = house.dlq_command("redrive", "--verify", "crm:odd")
    assert said.code == 2
    assert "--verify runs crm:odd for real: what it writes is written, and a dead letter that it " in said.err
    assert "remedy: add --yes if you are sure" in said.err
    assert house.dlq_command("redrive", "--yes").code == 2  # it has no effect there
    assert sorted(house.ids(house.dlq)) == [1, 2]


def test_verify_some_of_them(house: DeadHouse) -> None:
    house.die(1, 2, 3, 4)
    assert house.dlq_command("redrive", "--verify", "crm:odd", "--yes", "--match", "id=3").code == 0
    assert house.dlq_command("redrive", "--verify", "crm:odd", "--yes", "--limit", "1").code == 0
    assert sorted(house.ids(house.dlq)) == [2, 4]


def test_a_fatal_answer_stops_a_verify(house: DeadHouse) -> None:
    """D-16, X3: None is no answer; the message stays as it was, its reason included."""
    house.die(1, 2, x_chronicle_reason="yesterday's reason")
    said = house.dlq_command("redrive", "--verify", "crm:none", "--yes")
    assert said.code == 1
    left = house.take(house.dlq)
    assert sorted(one.id for one in left) == [1, 2]
    assert {one.headers[REASON] for one in left} == {"yesterday's reason"}


def test_export_writes_records_for_their_owner_and_drop_exports_first(house: DeadHouse) -> None:
    house.die(1, 2, 3)
    said = house.dlq_command("export", "dead.jsonl", "--match", "id=1,2")
    assert said.code == 0, said.err
    file = house.folder / "dead.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    records = [json.loads(line) for line in file.read_text().splitlines()]
    body = body_name(records[0]["transport"])
    assert [record[body]["json"]["actionId"] for record in records] == [1, 2]
    assert house.depth(house.dlq) == 3
    nowhere = house.dlq_command("export", "dead.jsonl", CHRONICLE_URL="amqp://127.0.0.1:1/")
    assert (nowhere.code, "already exists" in nowhere.err) == (2, True)  # before it connects
    assert house.dlq_command("drop").code == 2  # nobody to ask
    assert house.depth(house.dlq) == 3
    assert house.dlq_command("drop", "--yes", "--match", "id=2").code == 0
    (copy,) = house.folder.glob("*.dlq-*.jsonl")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert json.loads(copy.read_text())[body]["json"]["actionId"] == 2
    assert house.dlq_command("drop", "--yes", "--no-export", "--limit", "1").code == 0
    assert house.ids(house.dlq) == [3]


def test_personal_data_shows_only_with_reveal(house: DeadHouse) -> None:
    """D-21, Z5, Z16: a canary in the body, in a foreign header, and in one forged to look like ours."""
    house.put(
        house.dlq,
        [
            Outgoing(
                action(1),
                {
                    "x-tenant": CANARY,
                    "x-chronicle-reason": f"no room for {CANARY} at {CANARY}1@example.org",
                    "x-chronicle-consumer": CANARY,
                },
                {"message_id": CANARY},
            )
        ],
    )
    hidden = [
        house.dlq_command(*args)
        for args in (
            ["list"],
            ["list", "--json"],
            ["show"],
            ["show", "--json"],
            ["redrive", "--dry-run"],
            ["redrive", "--verify", "crm:tells", "--yes"],
            ["show"],
            ["export", "x.jsonl"],
            ["drop", "--limit", "1", "--yes"],
        )
    ]
    for said in hidden:
        assert CANARY not in said.out + said.err, said
    assert "x-tenant" in hidden[2].out
    assert "‹contact.email›" in hidden[6].out
    house.die(1)
    assert CANARY in house.dlq_command("show", "--reveal").out
    assert house.dlq_command("export", "-").code == 2
    assert CANARY in house.dlq_command("export", "-", "--reveal").out


def test_a_rate_is_not_exceeded(house: DeadHouse) -> None:
    """Not faster than: 20 at 20/s take most of a second, and keep their order."""
    house.die(*range(20))
    began = time.monotonic()
    said = house.dlq_command("redrive", "--rate", "20/s")
    assert time.monotonic() - began >= 0.9
    assert said.code == 0
    assert house.ids(house.queue) == list(range(20))


def test_exit_codes_of_what_cannot_begin(house: DeadHouse) -> None:
    """X6: usage 2, unreachable 3."""
    assert house.dlq_command("list", "--dlq", "no.such.queue").code == 2
    assert house.dlq_command("redrive", "--verify", "crm:odd", "--yes", "--rate", "5/s").code == 2
    assert house.dlq_command("redrive", "--schema", "json").code == 2
    said = house.dlq_command("list", "--startup-timeout", "10ms", CHRONICLE_URL="amqp://127.0.0.1:1/")
    assert said.code == 3
